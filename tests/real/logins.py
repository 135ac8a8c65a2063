"""Logins at brokers: files of passwords, and the ACL as the doctor prints it."""

import subprocess

from click.testing import CliRunner

from federator.cli.setup.doctor import command as doctor_command

SECRET = "right"
"""Everybody's password."""


def login(user):
    return user, SECRET.encode()


def write_secret(path):
    """``path``, a file for ``password_file`` of a configuration of ours."""
    path.touch(mode=0o600)
    path.write_text(SECRET)
    return path


def write_passwords(path, *users):
    """``path``, a file for ``password_file`` of mosquitto.conf."""
    path.write_text("".join(f"{user}:{SECRET}\n" for user in users))
    subprocess.run(["mosquitto_passwd", "-U", str(path)], check=True)
    return path


def write_acl(path, broker=1, *options, more=""):
    """``path``, a file for ``acl_file`` of the mosquitto.conf of ``broker``."""
    config = path.with_name(f"doctor-{broker}.toml")
    config.write_text(f'[broker]\nid = {broker}\nurl = "mqtt://b"\n{more}')
    printed = CliRunner().invoke(doctor_command, ["--acl", *options, "-c", str(config)])
    assert printed.exit_code == 0, printed.output
    path.write_text(printed.stdout)
    return path


def guarded(folder, users, broker=1, *options, more=""):
    """Lines of mosquitto.conf: ``users`` have passwords, and the rights that the doctor prints."""
    passwords = write_passwords(folder / "passwords", *users)
    acl = write_acl(folder / "acl", broker, *options, more=f'username = "federator"\n{more}')
    return f"password_file {passwords}", f"acl_file {acl}"
