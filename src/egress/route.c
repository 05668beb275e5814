/* SPDX-License-Identifier: Apache-2.0 */

/* Asks the kernel for the route to an address before egress connects to it. Addresses of the
 * host itself are closed to boxes. The kernel knows them at any moment, also those that were
 * added after the start, and calls their routes local. */

#include "egress/egress.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <unistd.h>

struct question {
    struct nlmsghdr head;
    struct rtmsg route;
    struct rtattr attribute;
    uint8_t address[16];
};

int route_open(struct egress *e)
{
    e->route_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    return e->route_fd < 0 ? -errno : 0;
}

/* netlink answers during send(), so the answer is there when it returns. Answers to
 * earlier questions are passed over. */
static int ask(const struct egress *e, struct question *question)
{
    static uint32_t sequence;
    union {
        struct nlmsghdr head;
        char bytes[4096];
    } answer;
    question->head.nlmsg_seq = ++sequence;
    if (send(e->route_fd, question, question->head.nlmsg_len, MSG_DONTWAIT) < 0)
        return -errno;
    for (;;) {
        ssize_t n = recv(e->route_fd, &answer, sizeof(answer), MSG_DONTWAIT);
        if (n < 0)
            return -errno;
        if (!NLMSG_OK(&answer.head, (uint32_t)n))
            return -EBADMSG;
        if (answer.head.nlmsg_seq != sequence)
            continue;
        if (answer.head.nlmsg_type != RTM_NEWROUTE ||
            answer.head.nlmsg_len < NLMSG_LENGTH(sizeof(struct rtmsg)))
            return -EHOSTUNREACH;
        return ((const struct rtmsg *)NLMSG_DATA(&answer.head))->rtm_type;
    }
}

uint32_t route_check(const struct egress *e, const struct address *address)
{
    bool is_v4 = address_is_v4(address);
    size_t size = is_v4 ? 4 : 16;
    struct question question = {
        .head = {.nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST},
        .route = {.rtm_family = is_v4 ? AF_INET : AF_INET6, .rtm_dst_len = (uint8_t)(size * 8)},
        .attribute = {.rta_type = RTA_DST, .rta_len = (uint16_t)RTA_LENGTH(size)}};
    memcpy(question.address, address->bytes + 16 - size, size);
    question.head.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof(struct rtmsg)) + RTA_LENGTH(size));
    int type = ask(e, &question);
    if (type == RTN_UNICAST)
        return 0;
    bool is_own = type == RTN_LOCAL || type == RTN_BROADCAST || type == RTN_ANYCAST ||
                  type == RTN_MULTICAST;
    return is_own ? REASON_HOST_ADDRESS : REASON_NO_ROUTE;
}

bool route_has_v6(const struct egress *e)
{
    const struct address global = {{0x20, 0x01, 0x05, 0x03, [15] = 1}};
    return route_check(e, &global) == 0;
}
