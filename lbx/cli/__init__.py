"""Command-line interface. Its import first removes the working folder from the module search path."""

import gc

from lbx.base.safepath import leave_out_working_folder

leave_out_working_folder()
gc.set_threshold(10_000)  # at 700, a tenth of the startup time is garbage collection of imported objects
