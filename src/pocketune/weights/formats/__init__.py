"""The formats that weights come in, one file each."""
