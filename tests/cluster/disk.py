"""The disk of a PostgreSQL server: a tmpfs that can be full. It is mounted for this process and its children alone, and ends with them."""

import ctypes
import os
import pathlib
import subprocess
import tempfile

# Of <linux/sched.h>.
CLONE_NEWNS = 0x00020000
# Only a limit: a tmpfs takes the memory of what is in it.
SIZE = "4G"
# How often a disk is filled, at most: the server may write between the look at it and the new limit.
ATTEMPTS = 100


def own_mounts():
    """Gives this process mounts of its own. Returns why that is not possible, or None. For the time before any thread starts."""
    if os.geteuid() != 0:
        return "root alone may mount a disk of limited size"
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        return f"this process may not have mounts of its own: {os.strerror(ctypes.get_errno())}"
    try:
        mount("--make-rprivate", "/")
        with tempfile.TemporaryDirectory() as folder:
            Disk(pathlib.Path(folder, "disk"), (0, 0)).close()
    except OSError as error:
        return str(error)
    return None


def mount(*arguments):
    """Raises OSError."""
    done = subprocess.run(["mount", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"mount: {done.stderr.strip()}")


class Disk:
    """A disk at an empty folder. `owner`: the user and the group who may use it."""

    def __init__(self, folder, owner):
        self.folder = folder
        folder.mkdir()
        mount("-t", "tmpfs", "-o", f"size={SIZE},mode=700,uid={owner[0]},gid={owner[1]}", "belay-cluster", str(folder))

    def fill(self):
        """Leaves no free space: the size becomes what is used, which takes no memory."""
        for _ in range(ATTEMPTS):
            space = os.statvfs(self.folder)
            try:
                return self.resize(f"{(space.f_blocks - space.f_bfree) * space.f_frsize // 1024}k")
            except OSError:
                continue  # the server has written meanwhile
        raise OSError(f"{self.folder} cannot be filled")

    def free(self):
        self.resize(SIZE)

    def resize(self, size):
        mount("-o", f"remount,size={size}", str(self.folder))

    def close(self):
        """After the end of the server."""
        subprocess.run(["umount", "--lazy", str(self.folder)], stdin=subprocess.DEVNULL, capture_output=True)
