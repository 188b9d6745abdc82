"""The command line. Whatever way it is started, it first closes the way of the working folder's files into it."""

from lbx.safepath import leave_out_working_folder

leave_out_working_folder()
