// id: X-46
// name: Socket families that are not for boxes
// group: network
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <sys/socket.h>

#define NO_SOCKET                                                                              \
    EAFNOSUPPORT, EPERM, EACCES, ENOSYS, EPROTONOSUPPORT, ESOCKTNOSUPPORT, EINVAL, EPROTOTYPE

static void attempt(unsigned long domain, int type, int protocol)
{
    char what[64];
    snprintf(what, sizeof what, "socket(%#lx,%d,%d)", domain, type, protocol);
    REFUSED(what, syscall(SYS_socket, domain, type, protocol), NO_SOCKET);
}

int main(void)
{
    if (control()) { /* one family that needs no module: looking for the others takes long */
        attempt(AF_NETLINK, SOCK_RAW, 15 /* kernel events */);
        return done();
    }
    const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};
    for (unsigned long domain = 0; domain < 48; domain++) {
        if (domain == AF_UNIX || domain == AF_INET || domain == AF_INET6 || domain == AF_NETLINK)
            continue;
        for (int t = 0; t < 4; t++) {
            attempt(domain, types[t], 0);
            attempt(domain | 1UL << 32, types[t], 0);
        }
    }
    /* AF_NETLINK: routing tables may be looked at, nothing else. */
    for (int protocol = 1; protocol < 23; protocol++) {
        attempt(AF_NETLINK, SOCK_RAW, protocol);
        attempt(AF_NETLINK | 1UL << 32, SOCK_DGRAM, protocol);
    }
    int fds[2];
    REFUSED("socketpair AF_TIPC", syscall(SYS_socketpair, AF_TIPC, SOCK_STREAM, 0, fds), NO_SOCKET,
        EOPNOTSUPP);
    REFUSED("socketpair high bits", syscall(SYS_socketpair, AF_VSOCK | 1UL << 32, SOCK_STREAM, 0, fds),
        NO_SOCKET, EOPNOTSUPP);
    return done();
}
