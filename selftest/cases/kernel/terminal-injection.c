// id: O-45
// name: Terminal injection
// group: kernel
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <sys/ioctl.h>

/* ENOTTY is fine: there is no terminal. In the control it shows that the call got through. */
static void inject(const char *what, int fd, unsigned long request, void *arg)
{
    errno = 0;
    int result = ioctl(fd, request, arg);
    if (result < 0 && (errno == EPERM || (errno == ENOTTY && !control())))
        blocked(what);
    else
        breach(what, errno_name(errno));
}

int main(void)
{
    char paste = 3; /* TIOCLINUX: paste the selection */
    for (int fd = 0; fd < 3; fd++) {
        inject("TIOCSTI", fd, TIOCSTI, "x");
        inject("TIOCLINUX", fd, TIOCLINUX, &paste);
    }
    setsid();
    inject("TIOCSCTTY", 0, TIOCSCTTY, NULL);
    const char *ttys[] = {"/dev/tty", "/dev/console", "/dev/ptmx", "/dev/pts/0", "/dev/pts/ptmx",
        "/dev/tty0", "/dev/tty1", "/dev/ttyS0"};
    for (size_t i = 0; i < sizeof ttys / sizeof *ttys; i++)
        REFUSED(ttys[i], open(ttys[i], O_RDWR | O_NOCTTY), ENOENT, EACCES, EPERM, ENXIO);
    return done();
}
