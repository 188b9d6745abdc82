"""The command line. Whatever way it is started, it first closes the way of the working folder's files into it."""

import gc

from lbx.base.safepath import leave_out_working_folder

leave_out_working_folder()
gc.set_threshold(10_000)  # at 700 a tenth of a start goes into looking through what imports have made
