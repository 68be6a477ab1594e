"""Open WebUI and the scripted model behind the daemon: see open_webui.py."""
