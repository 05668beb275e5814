/* SPDX-License-Identifier: Apache-2.0 */

/* Datagrams. The kernel hands every datagram of a box to the listener of its kit, with the
 * address it was meant for. Each pair of ends is a flow with a connected socket outside.
 * Answers go into the box as packets that egress builds: they must come from the address and
 * the port that the box sent to. */

#include "egress/egress.h"

#include "base/alloc.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLOW_DESCRIPTORS = 1, HELD_MAX = 2048 };

static enum served serve_flow(struct source *s);

static struct flow *find(const struct box *b, const struct packet_ends *ends)
{
    struct flow *f = b->flow_table[box_slot(ends)];
    while (f && !packet_ends_equal(&f->ends, ends))
        f = f->next;
    return f;
}

static struct flow *add(
    struct box *b, const struct packet_ends *ends, const struct record_ref *ref)
{
    struct flow *f = xcalloc(1, sizeof(*f));
    struct flow **slot = &b->flow_table[box_slot(ends)];
    f->box = b;
    f->ends = *ends;
    f->ref = *ref;
    f->outside = (struct source){.box = b, .serve = serve_flow, .owner = f, .fd = -EBADF};
    f->next = *slot;
    *slot = f;
    TAILQ_INSERT_TAIL(&b->flows, f, entry);
    return f;
}

void udp_end(struct flow *f)
{
    struct box *b = f->box;
    struct egress *e = b->egress;
    struct flow **at = &b->flow_table[box_slot(&f->ends)];
    loop_close(e, &f->outside);
    if (f->question)
        ask_leave(f->question);
    f->question = NULL;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    TAILQ_REMOVE(&b->flows, f, entry);
    TAILQ_INSERT_TAIL(&e->dead_flows, f, entry);
    box_release(b, FLOW_DESCRIPTORS);
}

static int open_outside(struct flow *f)
{
    struct sockaddr_storage name;
    socklen_t len = sockaddr_make(&name, &f->to, f->ends.destination_port);
    int fd = socket(name.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    f->outside.fd = fd;
    if (connect(fd, (const struct sockaddr *)&name, len) < 0)
        return -errno;
    return loop_add(f->box->egress, &f->outside);
}

/* Opens the socket of a flow. Returns false when there is none, and the box was told. */
static bool open_flow(struct flow *f, size_t len)
{
    if (open_outside(f) == 0)
        return true;
    inject_unreachable_udp(f->box, &f->ends, len, PACKET_HOST_UNREACHABLE);
    udp_end(f);
    return false;
}

/* Waits for an approval with the first datagram, if it is not long. Others are lost meanwhile.
 */
static void hold(struct flow *f, const uint8_t *data, size_t len)
{
    f->deadline_ms = UINT64_MAX;
    if (len <= HELD_MAX) {
        f->held = xmalloc(len + 1);
        f->held_len = len;
        memcpy(f->held, data, len);
    }
    uint32_t reason = ask_hold(f->box, &f->ref.key, &f->question);
    if (reason)
        udp_refuse(f, reason);
    else
        ask_begin(f->question);
}

/* A new pair of ends. Returns its flow; NULL when it waits, or is denied and the box was told.
 */
static struct flow *begin(
    struct box *b, const struct packet_ends *ends, const uint8_t *data, size_t len)
{
    const struct attempt what = {.protocol = NETWORK_UDP,
        .address = ends->destination,
        .port = ends->destination_port,
        .descriptors = FLOW_DESCRIPTORS};
    struct record_ref ref;
    bool is_by_name;
    enum admission admission = box_admit(b, &what, &ref, &is_by_name);
    if (admission == ADMIT_DENIED) {
        inject_unreachable_udp(
            b, ends, len, PACKET_PROHIBITED); /* a connected socket sees it */
        return NULL;
    }
    struct flow *f = add(b, ends, &ref);
    f->to = ends->destination;
    if (admission == ADMIT_ASK) {
        hold(f, data, len);
        return NULL;
    }
    return open_flow(f, len) ? f : NULL;
}

/* Tells the box about an error that the outside socket reports for an earlier datagram. */
static void tell_error(struct flow *f, size_t len, int error)
{
    enum packet_unreachable why =
        error == ECONNREFUSED ? PACKET_PORT_UNREACHABLE : PACKET_HOST_UNREACHABLE;
    if (error != EMSGSIZE)
        inject_unreachable_udp(f->box, &f->ends, len, why);
}

static void send_out(struct box *b, struct flow *f, const uint8_t *data, size_t len)
{
    if (account_rate(&b->account, SENT, b->egress->now_ms) == 0)
        return; /* too fast: lost, as on any full line */
    if (len > account_left(&b->account, SENT)) {
        box_exceed(b);
        return;
    }
    f->deadline_ms = b->egress->now_ms + FLOW_MS;
    if (send(f->outside.fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        box_count(b, &f->ref, SENT, len);
    else if (errno != EAGAIN && errno != ENOBUFS)
        tell_error(f, len, errno);
}

void udp_refuse(struct flow *f, uint32_t reason)
{
    f->question = NULL;
    box_settle(f->box, &f->ref, reason, NULL);
    inject_unreachable_udp(f->box, &f->ends, f->held_len, PACKET_PROHIBITED);
    udp_end(f);
}

void udp_proceed(struct flow *f, const struct address *to)
{
    f->question = NULL;
    f->is_approved = true;
    f->to = *to;
    f->deadline_ms = f->box->egress->now_ms + FLOW_MS;
    box_settle(f->box, &f->ref, 0, to);
    if (!open_flow(f, f->held_len))
        return;
    if (f->held)
        send_out(f->box, f, f->held, f->held_len);
    free(f->held);
    f->held = NULL;
}

static bool read_destination(struct msghdr *message, struct packet_ends *ends)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        bool is_v4 = c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_ORIGDSTADDR;
        bool is_v6 = c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_ORIGDSTADDR;
        size_t size = is_v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        struct sockaddr_storage name = {0};
        if ((!is_v4 && !is_v6) || c->cmsg_len < CMSG_LEN(size))
            continue;
        memcpy(&name, CMSG_DATA(c), size);
        return sockaddr_read(&name, &ends->destination, &ends->destination_port);
    }
    return false;
}

static void take_datagram(
    struct box *b, const struct packet_ends *ends, const uint8_t *data, size_t len)
{
    if (ends->destination_port == DNS_PORT) {
        lookup_datagram(b, ends, data, len);
        return;
    }
    struct flow *f = find(b, ends);
    if (!f)
        f = begin(b, ends, data, len);
    if (f && !f->question)
        send_out(b, f, data, len);
}

enum served udp_serve_listener(struct source *s)
{
    struct box *b = s->owner;
    struct egress *e = b->egress;
    while (b->turn_left > 0) {
        /* A box above its rate waits, and the kernel drops datagrams that do not fit
         * meanwhile. */
        if (bucket_level(&b->account.attempts, e->now_ms) == 0)
            return SERVED_STARVED;
        union {
            char bytes[256];
            struct cmsghdr align;
        } control;
        struct sockaddr_storage from = {0};
        struct iovec part = {.iov_base = e->buffer, .iov_len = sizeof(e->buffer)};
        struct msghdr message = {.msg_name = &from,
            .msg_namelen = sizeof(from),
            .msg_iov = &part,
            .msg_iovlen = 1,
            .msg_control = control.bytes,
            .msg_controllen = sizeof(control.bytes)};
        struct packet_ends ends = {0};
        ssize_t n = recvmsg(s->fd, &message, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            s->is_readable = false;
            return SERVED_ALL;
        }
        b->turn_left -= STEP_COST;
        if (n >= 0 && sockaddr_read(&from, &ends.source, &ends.source_port) &&
            read_destination(&message, &ends))
            take_datagram(b, &ends, e->buffer, (size_t)n);
    }
    return SERVED_MORE;
}

/* Answers from outside. */
static enum served serve_flow(struct source *s)
{
    struct flow *f = s->owner;
    struct box *b = f->box;
    struct egress *e = b->egress;
    while (s->is_readable && s->fd >= 0) {
        if (b->turn_left <= 0)
            return SERVED_MORE;
        if (account_rate(&b->account, RECEIVED, e->now_ms) == 0)
            return SERVED_STARVED;
        ssize_t n = recv(s->fd, e->buffer, sizeof(e->buffer), MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            s->is_readable = false;
            break;
        }
        b->turn_left -= STEP_COST;
        if (n < 0) {
            tell_error(f, 0, errno);
            continue;
        }
        if ((uint64_t)n > account_left(&b->account, RECEIVED)) {
            box_exceed(b);
            break;
        }
        f->deadline_ms = e->now_ms + FLOW_MS;
        b->turn_left -= n;
        box_count(b, &f->ref, RECEIVED, (uint64_t)n);
        inject_datagram(b, &f->ends, e->buffer, (size_t)n);
    }
    return SERVED_ALL;
}
