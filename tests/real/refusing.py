"""Brokers that refuse a SUBSCRIBE: Mosquitto does by a plugin of its own, not by an ACL file."""

import json
from pathlib import Path

from lab.grid.processes.broker import find_mosquitto

PLUGIN = "mosquitto_dynamic_security.so"


def refuse(folder, pattern):
    """Lines for mosquitto.conf that refuse SUBSCRIBE for ``pattern``."""
    acl = {"acltype": "subscribePattern", "topic": pattern, "allow": False}
    all_may = ("publishClientSend", "publishClientReceive", "subscribe", "unsubscribe")
    rules = {
        "defaultACLAccess": dict.fromkeys(all_may, True),
        "clients": [],
        "roles": [{"rolename": "some", "acls": [acl]}],
        "groups": [{"groupname": "all", "clients": [], "roles": [{"rolename": "some"}]}],
        "anonymousGroup": "all",
    }
    path = folder / "dynamic-security.json"
    path.write_text(json.dumps(rules))
    built = Path(find_mosquitto()).parent.parent / "lib" / PLUGIN
    (plugin,) = [built] if built.exists() else Path("/usr/lib").glob(f"*/{PLUGIN}")
    return (f"plugin {plugin}", f"plugin_opt_config_file {path}")
