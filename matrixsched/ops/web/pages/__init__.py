"""The dashboard: pages made on the server, which work without a script and are refreshed by a small one.

Nothing is changed by opening a page. Whatever changes something is a link to a page that says what will be done
(`change/VERB`), and a form there that does it (`changing`). Every text that others wrote is escaped by the templates.
"""
