"""How large a fleet may grow: what is known, the formulae, and what checks them."""
