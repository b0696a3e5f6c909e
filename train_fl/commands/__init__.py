"""The commands of ``fl-edge`` as options and functions; `train_fl.command_line` assembles them."""
