# SPDX-License-Identifier: Apache-2.0
"""The interpreter's part in copying its session (docs/internals/session-fork.md). It forks when asked. The copy
takes new pipes and a new channel, waits until it has its own box, and moves its working directory and open
files to the files there.

No security depends on this file, because user code has run in this process. The copy worker does the security
steps from outside and checks the result. What cannot be copied is refused here first, because only here the
error can name it."""
import builtins

__builtins__ = dict(vars(builtins))

import ctypes  # noqa: E402
import fcntl  # noqa: E402
import gc  # noqa: E402
import io  # noqa: E402
from _signal import SIG_BLOCK, SIG_SETMASK, SIGCHLD, SIGINT, pthread_sigmask  # noqa: E402
from _socket import CMSG_SPACE, SCM_RIGHTS, SOL_SOCKET, socket  # noqa: E402
from os import (  # noqa: E402
    O_ACCMODE, O_CLOEXEC, O_CREAT, O_EXCL, O_PATH, O_RDONLY, O_RDWR, O_TMPFILE, O_TRUNC, O_WRONLY, SEEK_CUR, SEEK_SET,
    _exit, chdir, close, dup2, fstat, get_inheritable, getpid, listdir, lseek, open as open_file, read,
    readlink, sendfile, stat, strerror, write)
from stat import S_ISCHR, S_ISDIR, S_ISFIFO, S_ISREG, S_ISSOCK  # noqa: E402
from sys import addaudithook  # noqa: E402

CLONE = 56  # system call number on x86-64; the server does not ask elsewhere
CLONE_PARENT = 0x8000
PLACES = "/box", "/tmp", "/dev/shm"

api = ctypes.PyDLL(None, use_errno=True)


class Refusal(Exception):
    pass


def clone():
    """fork(), but the copy is no child of this process: os.wait() of user code must not find it."""
    api.PyOS_BeforeFork()
    pid = api.syscall(CLONE, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        api.PyOS_AfterFork_Child()
        return 0
    problem = ctypes.get_errno()
    api.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(problem, strerror(problem))
    return pid


def identity(fd):
    return fstat(fd)[1:3]


class OpenFile:
    """A descriptor of a file or directory that the copy has to open again. A file outside of the copy's own file systems
    is the same file there; opened again, it has a position of its own."""
    def __init__(self, fd, status, is_outside=False):
        self.fd = fd
        self.identity = identity(fd)
        self.path = "/proc/self/fd/%d" % fd
        if not is_outside:
            self.path = readlink(self.path)
        self.flags = fcntl.fcntl(fd, fcntl.F_GETFL) & ~(O_CREAT | O_EXCL | O_TRUNC)
        self.size = status.st_size
        self.is_deleted = status.st_nlink == 0 and S_ISREG(status.st_mode) and not is_outside
        self.is_directory = S_ISDIR(status.st_mode)
        if status.st_nlink == 0 and not is_outside and (self.is_directory or self.flags & O_ACCMODE == O_WRONLY):
            raise Refusal("descriptor %d (%s) is of something that was deleted; close it first" % (fd, self.path))

    def is_open(self):
        """Whether the descriptor is still that of the file: handlers of a fork (os.register_at_fork) may close it in the copy."""
        try:
            return identity(self.fd) == self.identity
        except OSError:
            return False

    def move(self):
        inheritable = get_inheritable(self.fd)
        at = 0 if self.flags & O_PATH or self.is_directory else lseek(self.fd, 0, SEEK_CUR)
        if self.is_deleted:
            new = open_file("/box", O_TMPFILE | O_RDWR | O_CLOEXEC, 0o600)
            done = 0
            while done < self.size:
                count = sendfile(new, self.fd, done, self.size - done)
                if not count:
                    break
                done += count
        else:
            new = open_file(self.path, self.flags | O_CLOEXEC)
        if at:
            lseek(new, at, SEEK_SET)
        dup2(new, self.fd, inheritable)
        close(new)


class Lookout:
    """Tells the server which connections the code of a preview tries. It has no network, so each of them fails."""
    WORDS = {"socket.connect": 1, "socket.sendto": 1, "socket.getaddrinfo": 0}  # event: the argument with the address
    MOST = 20

    def __init__(self, kernel):
        self.kernel = kernel
        self.told = set()

    def see(self, event, args):
        try:
            if event in self.WORDS and len(self.told) < self.MOST and getpid() == self.kernel.pid:
                address = args[self.WORDS[event]]
                if event == "socket.getaddrinfo":
                    address = args[:2]
                if type(address) is tuple:
                    address = ":".join([str(part) for part in address[:2] if type(part) in (str, int)])
                elif type(address) is bytes:
                    address = address.decode("utf-8", "backslashreplace")
                if type(address) is str and address not in self.told:
                    self.told.add(address)
                    self.kernel.channel.send("attempt", {"address": address[:200]})
        except Exception:
            pass  # the code must not notice, and not fail


class Forker:
    def __init__(self, kernel):
        self.kernel = kernel
        self.pipes = [identity(1), identity(2)]

    def look(self):
        """Plans what the copy does with each descriptor; raises Refusal for one that the copy cannot have."""
        threads = len(listdir("/proc/self/task"))
        if threads > 1:
            raise Refusal("%d threads run beside the interpreter's own; a copy would not have them: "
                          "end them (close pools and executors) first" % (threads - 1))
        places = {stat(place).st_dev for place in PLACES}
        files, pipes = [], []
        for fd in map(int, listdir("/proc/self/fd")):
            try:
                status = fstat(fd)
            except OSError:
                continue  # the descriptor that listdir() itself used
            self.sort(fd, status, places, files, pipes)
        with open_text("/proc/self/maps") as maps:
            for line in maps:
                mode = line.split(None, 2)[1]
                if mode[3] == "s" and (mode[1] == "w" or line.endswith(" (deleted)\n")):
                    raise Refusal("memory is mapped that is shared with other processes (mmap, multiprocessing); "
                                  "it would be shared with the copy: unmap it first")
        return files, pipes

    def sort(self, fd, status, places, files, pipes):
        mode = status.st_mode
        if fd == self.kernel.channel.fd:
            return
        if S_ISFIFO(mode) and (status.st_ino, status.st_dev) in self.pipes:
            pipes.append((fd, self.pipes.index((status.st_ino, status.st_dev))))
        elif status.st_dev in places and (S_ISREG(mode) or S_ISDIR(mode)):
            files.append(OpenFile(fd, status))
        elif S_ISSOCK(mode):
            raise Refusal("descriptor %d is a socket; close it first" % fd)
        elif S_ISFIFO(mode):
            raise Refusal("descriptor %d is a pipe; close it first (a process that was started with pipes holds "
                          "some until it is waited for)" % fd)
        elif S_ISDIR(mode):
            raise Refusal("descriptor %d is a directory outside /box and /tmp; close it first" % fd)
        elif S_ISCHR(mode) and status.st_rdev >> 8 == 1:  # memory devices: /dev/null, /dev/zero, /dev/urandom
            return
        elif S_ISCHR(mode):
            raise Refusal("descriptor %d (%s) is a terminal; close it first" % (fd, readlink("/proc/self/fd/%d" % fd)))
        elif not S_ISREG(mode) or not is_read_only(fd):
            raise Refusal("descriptor %d (%s) cannot be copied; close it first" % (
                fd, readlink("/proc/self/fd/%d" % fd)))
        else:
            files.append(OpenFile(fd, status, is_outside=True))

    def fork(self, is_preview=False):
        """Answers one `fork` frame of the server, and forks if the server says so."""
        channel = self.kernel.channel
        mask = pthread_sigmask(SIG_BLOCK, (SIGINT,))
        try:
            if not is_preview:  # the code of a preview's original must not notice
                self.kernel.flush()
            files, pipes = self.look()
            where = self.kernel.where()
        except Refusal as problem:
            channel.send("fork", {"refused": str(problem)})
            return
        except Exception as problem:
            channel.send("fork", {"refused": "the interpreter cannot look at itself: %s" % problem})
            return
        finally:
            pthread_sigmask(SIG_SETMASK, mask)
        channel.send("fork", {"refused": None})
        fds = take_descriptors(channel.fd)
        if len(fds) != 4:
            return
        mask = pthread_sigmask(SIG_BLOCK, (SIGINT,))
        try:
            pid = clone()
        except OSError as problem:
            pid = -1
            channel.send("fork", {"refused": "the interpreter cannot fork: %s" % problem})
        if pid == 0:
            try:
                self.be_copy(fds, files, pipes, where)
            except BaseException as problem:
                write(2, ("hermes: the copy failed: %r\n" % problem).encode())
                _exit(70)
            if is_preview:
                self.look_out()
            pthread_sigmask(SIG_SETMASK, mask)
            self.kernel.channel.send("ready", {"cwd": self.kernel.where(), "kernel": self.kernel.rich.name})
            return
        for fd in fds:
            close(fd)
        pthread_sigmask(SIG_SETMASK, mask)
        if pid > 0:
            channel.send("fork", {"refused": None})

    def look_out(self):
        try:
            addaudithook(Lookout(self.kernel).see)
        except Exception:
            pass  # an audit hook of the code refuses this one

    def be_copy(self, fds, files, pipes, where):
        kernel, hello = self.kernel, fds[3]
        for fd, which in pipes:
            dup2(fds[which], fd, get_inheritable(fd))
        dup2(fds[2], kernel.channel.fd, False)
        self.pipes = [identity(fds[0]), identity(fds[1])]
        for fd in fds[:3]:
            close(fd)
        kernel.pid, kernel.identity = getpid(), identity(kernel.channel.fd)
        kernel.channel.buffer.clear()
        gc.freeze()  # a collection would write to all pages and unshare them
        ask(hello, b"h", b"m")
        try:
            chdir(where)
        except OSError:
            chdir("/box")
        for one in files:
            if one.is_open():
                one.move()
        ask(hello, b"r", b"k")
        close(hello)


def ask(fd, word, answer):
    write(fd, word)
    if read(fd, 1) != answer:
        _exit(0)  # the spawner has given up the copy


def is_read_only(fd):
    return fcntl.fcntl(fd, fcntl.F_GETFL) & O_ACCMODE == O_RDONLY and not readlink(
        "/proc/self/fd/%d" % fd).startswith(("/proc/", "/memfd:"))


def open_text(path):
    return io.TextIOWrapper(io.BufferedReader(io.FileIO(path)), "utf-8", "surrogateescape")


def take_descriptors(fd):
    channel = socket(fileno=fd)
    try:
        _, ancillary, _, _ = channel.recvmsg(1, CMSG_SPACE(4 * 4), 0x40000000)  # MSG_CMSG_CLOEXEC
    finally:
        channel.detach()
    fds = []
    for level, kind, data in ancillary:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            fds += [int.from_bytes(data[i:i + 4], "little") for i in range(0, len(data) - 3, 4)]
    return fds
