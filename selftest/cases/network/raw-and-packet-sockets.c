// id: O-37
// name: Raw and packet sockets
// group: network
// priority: 1
// expect: ok
// control: seccomp,caps
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define NO_SOCKET EPERM, EACCES, EAFNOSUPPORT, ENOSYS, EPROTONOSUPPORT, ESOCKTNOSUPPORT

int main(void)
{
    REFUSED("AF_PACKET raw", socket(AF_PACKET, SOCK_RAW, htons(3)), NO_SOCKET);
    REFUSED("AF_PACKET datagram", socket(AF_PACKET, SOCK_DGRAM, htons(3)), NO_SOCKET);
    REFUSED("AF_INET raw ICMP", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), NO_SOCKET);
    REFUSED("AF_INET raw", socket(AF_INET, SOCK_RAW, IPPROTO_RAW), NO_SOCKET);
    REFUSED("AF_INET6 raw", socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6), NO_SOCKET);
    REFUSED("AF_INET SOCK_PACKET", socket(AF_INET, SOCK_PACKET, htons(3)), NO_SOCKET);
    REFUSED("/dev/net/tun", open("/dev/net/tun", O_RDWR), ENOENT, EACCES, EPERM, ENOTDIR);
    return done();
}
