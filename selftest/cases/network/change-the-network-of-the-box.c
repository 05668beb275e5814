// id: X-47
// name: Change the network of the box
// group: network
// priority: 1
// expect: ok
// control: caps
// files: probe.h
#include "probe.h"
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* setsockopt() of the packet filter: the way to its many bugs. */
enum { IPT_SO_SET_REPLACE = 64, IPT_SO_GET_INFO = 64 };

int main(void)
{
    int s = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    struct ifreq request = {.ifr_name = "lo"};
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    REFUSED("SO_MARK", setsockopt(s, SOL_SOCKET, SO_MARK, &one, sizeof one), EPERM);
    REFUSED("SIOCSIFFLAGS", ioctl(s, SIOCSIFFLAGS, &request), EPERM);
    request.ifr_mtu = 1500;
    REFUSED("SIOCSIFMTU", ioctl(s, SIOCSIFMTU, &request), EPERM);
    REFUSED("IP_TRANSPARENT", setsockopt(s, IPPROTO_IP, 19, &one, sizeof one), EPERM);
    REFUSED("SO_PRIORITY 7", setsockopt(s, SOL_SOCKET, SO_PRIORITY, &(int){7}, sizeof one), EPERM);
    char table[84] = "filter";
    socklen_t size = sizeof table;
    REFUSED("IPT_SO_GET_INFO", getsockopt(s, IPPROTO_IP, IPT_SO_GET_INFO, table, &size), EPERM,
        ENOPROTOOPT);
    REFUSED("IPT_SO_SET_REPLACE", setsockopt(s, IPPROTO_IP, IPT_SO_SET_REPLACE, table, size), EPERM,
        ENOPROTOOPT);

    /* A new link by netlink, if there is any netlink. */
    int n = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    if (n < 0) {
        blocked("NETLINK_ROUTE");
        return done();
    }
    struct {
        struct nlmsghdr head;
        struct ifinfomsg info;
        struct rtattr name_head;
        char name[8];
    } new_link = {{sizeof new_link, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0},
        {0}, {sizeof(struct rtattr) + 8, IFLA_IFNAME}, "hx0"};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
    } answer = {{0}, {0}};
    if (send(n, &new_link, sizeof new_link, 0) > 0 && recv(n, &answer, sizeof answer, MSG_TRUNC) > 0) {
        errno = -answer.error.error;
        REFUSED("RTM_NEWLINK", (errno = -answer.error.error) ? -1 : 0, EPERM);
    }
    return done();
}
