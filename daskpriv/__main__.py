"""`python -m daskpriv`."""

from daskpriv.cli import main

if __name__ == "__main__":
    main()
