"""A hostile guest, beside a VM whose results are checked while it attacks: the list D1 to D28 of SECURITY.md."""
