/* SPDX-License-Identifier: Apache-2.0 */

/* Puts a kit into a namespace: the steps, in order. Opening these sockets needs rights over the
 * namespace; using them needs none. */

#include "kit/kit.h"

#include "base/cleanup.h"
#include "base/os/netns.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/in6.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef IPV6_TRANSPARENT
#define IPV6_TRANSPARENT 75
#endif
#ifndef IPV6_RECVORIGDSTADDR
#define IPV6_RECVORIGDSTADDR 74
#endif
#ifndef IPV6_HDRINCL
#define IPV6_HDRINCL 36
#endif
#ifndef IP_RECVORIGDSTADDR
#define IP_RECVORIGDSTADDR 20
#endif

/* Retries of a SYN: with 9, connect() gives up after about ten minutes. */
#define SYN_RETRIES "9"

/* BACKLOG: connections that egress has let pass and not accepted yet. RECEIVE_BYTES: room for
 * what a box sends; SEND_BYTES: for what it has not read. Accepted connections have the same.
 * The memory is that of egress, so a box that does not read must not make it grow. */
enum { BACKLOG = 256, RECEIVE_BYTES = 256 << 10, SEND_BYTES = 512 << 10 };

/* Whether an error of the kernel means that IPv6 is missing or switched off. */
static bool lacks_v6(int error)
{
    return error == -EOPNOTSUPP || error == -EAFNOSUPPORT || error == -EACCES;
}

static int set(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof(value)) < 0 ? -errno : 0;
}

static int bind_to(int fd, int domain)
{
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(KIT_PORT)};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(KIT_PORT)};
    (void)inet_pton(AF_INET, KIT_LISTEN_V4, &a4.sin_addr);
    (void)inet_pton(AF_INET6, KIT_LISTEN_V6, &a6.sin6_addr);
    int r = domain == AF_INET6 ? bind(fd, (struct sockaddr *)&a6, sizeof(a6))
                               : bind(fd, (struct sockaddr *)&a4, sizeof(a4));
    return r < 0 ? -errno : 0;
}

static int open_listener(int domain, int type)
{
    bool six = domain == AF_INET6;
    int level = six ? IPPROTO_IPV6 : IPPROTO_IP;
    cleanup_close int fd = socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = fd < 0 ? -errno : set(fd, level, six ? IPV6_TRANSPARENT : IP_TRANSPARENT, 1);
    if (r == 0 && six)
        r = set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (r == 0 && type == SOCK_DGRAM)
        r = set(fd, level, six ? IPV6_RECVORIGDSTADDR : IP_RECVORIGDSTADDR, 1);
    if (r == 0)
        r = set(fd, SOL_SOCKET, SO_RCVBUF, RECEIVE_BYTES);
    if (r == 0)
        r = set(fd, SOL_SOCKET, SO_SNDBUF, SEND_BYTES);
    if (r == 0)
        r = bind_to(fd, domain);
    if (r == 0 && type == SOCK_STREAM && listen(fd, BACKLOG) < 0)
        r = -errno;
    return r < 0 ? r : take_fd(&fd);
}

/* The mark needs a right to set, none to send. */
static int open_raw(int domain)
{
    cleanup_close int fd = socket(domain, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);
    int r = fd < 0 ? -errno : set(fd, SOL_SOCKET, SO_MARK, KIT_MARK);
    if (r == 0 && domain == AF_INET6)
        r = set(fd, IPPROTO_IPV6, IPV6_HDRINCL, 1);
    return r < 0 ? r : take_fd(&fd);
}

static int open_reports(const struct batch *b)
{
    cleanup_close int fd =
        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER);
    int r = fd < 0 ? -errno : batch_send(fd, b);
    return r < 0 ? r : take_fd(&fd);
}

static int open_socket(enum kit_fd which, const struct kit_batches *batches)
{
    switch (which) {
    case KIT_REPORTS:
        return open_reports(&batches->reports);
    case KIT_TCP4:
        return open_listener(AF_INET, SOCK_STREAM);
    case KIT_TCP6:
        return open_listener(AF_INET6, SOCK_STREAM);
    case KIT_UDP4:
        return open_listener(AF_INET, SOCK_DGRAM);
    case KIT_UDP6:
        return open_listener(AF_INET6, SOCK_DGRAM);
    case KIT_RAW4:
        return open_raw(AF_INET);
    case KIT_RAW6:
        return open_raw(AF_INET6);
    case KIT_COUNT:
        break;
    }
    return -EINVAL;
}

static bool is_of_v6(enum kit_fd which)
{
    return which == KIT_TCP6 || which == KIT_UDP6 || which == KIT_RAW6;
}

static enum kit_part part_of(enum kit_fd which)
{
    return which == KIT_REPORTS                     ? PART_REPORTS
           : which == KIT_RAW4 || which == KIT_RAW6 ? PART_RAW
                                                    : PART_LISTENERS;
}

static int open_sockets(const struct kit_batches *batches, struct kit *kit, enum kit_part *part)
{
    for (unsigned i = 0; i < KIT_COUNT; i++) {
        if (is_of_v6(i) && !kit->has_v6)
            continue;
        *part = part_of(i);
        int r = fault_error(*part);
        if (r == 0)
            r = open_socket(i, batches);
        if (r < 0)
            return r;
        kit->fds[i] = r;
    }
    return 0;
}

static int tell(
    enum kit_part part, int protocol, const struct batch *b, enum kit_part *ret_part)
{
    enum kit_part last = part == PART_RULES ? PART_TPROXY : part;
    int r = 0;
    *ret_part = part;
    for (enum kit_part i = part; r == 0 && i <= last; i++)
        r = fault_error(i);
    return r < 0 ? r : batch_tell(protocol, b);
}

/* connect() waits two minutes by default, an approval may take longer (mode "ask"). Where the
 * file cannot be written, two minutes it is. */
static void extend_patience(void)
{
    cleanup_close int fd =
        open("/proc/sys/net/ipv4/tcp_syn_retries", O_WRONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t n = fd < 0 ? 0 : write(fd, SYN_RETRIES, sizeof(SYN_RETRIES) - 1);
    (void)n;
}

/* The rules come before any socket that could let a packet pass, and after the routes: without
 * rules a packet that has a route reaches nobody but the box itself. */
static int install(const struct kit_batches *b, struct kit *kit, enum kit_part *part)
{
    *part = PART_LOOPBACK;
    int r = fault_error(PART_LOOPBACK);
    if (r < 0 || (r = netns_raise_loopback()) < 0 ||
        (r = tell(PART_ROUTES, NETLINK_ROUTE, &b->routes4, part)) < 0)
        return r;
    r = tell(PART_IPV6, NETLINK_ROUTE, &b->routes6, part);
    kit->has_v6 = r == 0;
    if (r < 0 && !lacks_v6(r))
        return r;
    extend_patience();
    r = tell(PART_RULES, NETLINK_NETFILTER, kit->has_v6 ? &b->rules : &b->rules4, part);
    return r < 0 ? r : open_sockets(b, kit, part);
}

int kit_install(const struct kit_batches *batches, struct kit *ret, enum kit_part *ret_part)
{
    struct kit kit = {.has_v6 = false};
    memset(kit.fds, -1, sizeof(kit.fds));
    int r = install(batches, &kit, ret_part);
    if (r < 0)
        kit_close(&kit);
    else
        *ret = kit;
    return r;
}

void kit_close(struct kit *kit)
{
    for (unsigned i = 0; i < KIT_COUNT; i++)
        close_fd(&kit->fds[i]);
}
