"""`python -m sickbay` is the command `sickbay`. Nothing else lives here."""

from sickbay.cli import main

if __name__ == "__main__":
    main()
