/* SPDX-License-Identifier: Apache-2.0 */

/* See egress.h. The spawner never waits here. hermes-network answers orders when it can; a box
 * whose kit is not there yet goes on when the answer comes. hermes-egress may be slow to read:
 * messages that do not fit are sent later. One that hangs loses its socket, which ends it. */

#include "spawn/network/egress.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "spawn/box.h"
#include "spawn/program.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

/* How long hermes-network may take for an answer. The first kit of a host may load modules of
 * the kernel: PROBE_MS. ROOM_MS: how long hermes-egress may leave its messages unread. */
enum { INSTALL_MS = 2000, PROBE_MS = 20000, ROOM_MS = 2000 };

static const char *const part_names[PART_COUNT] = {
#define PART_NAME(name, text) [name] = text,
    KIT_PARTS(PART_NAME)
#undef PART_NAME
};

void egress_init(struct egress *e)
{
    *e = (struct egress){.source = -1, .socket = -1, .helper = -1};
}

static int watch(const struct spawner *s, int fd, uint64_t event)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = event};
    return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

static int start_helper(struct spawner *s)
{
    struct egress *e = &s->egress;
    if (e->helper >= 0)
        return 0;
    int pid = program_start(network_program(&s->network), "hermes-network", &e->helper);
    e->helper_pid = pid < 0 ? 0 : pid;
    return pid < 0 ? pid : watch(s, e->helper, EVENT_KIT);
}

/* Takes the box that the next answer is about off the list: NULL when it is gone. */
static struct box *next_waiting(struct spawner *s)
{
    struct egress *e = &s->egress;
    struct box *box = e->waiting[0];
    memmove(e->waiting, e->waiting + 1, --e->waiting_count * sizeof(struct box *));
    e->asked_ms = clock_ms();
    return box;
}

/* The kit of a box is there, or will not come. */
static void go_on(struct spawner *s, struct box *box, int error)
{
    egress_then *then = box->egress.then;
    box->egress.then = NULL;
    then(s, box, error);
}

/* Stops a hermes-network that failed or hangs; the next order starts another one. */
static void lose_helper(struct spawner *s, int error)
{
    struct egress *e = &s->egress;
    if (e->helper >= 0)
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, e->helper, NULL);
    program_stop(&e->helper_pid, &e->helper);
    while (e->waiting_count) {
        struct box *box = next_waiting(s);
        if (box)
            go_on(s, box, error);
    }
}

static int send_order(struct spawner *s, enum kit_order_kind kind, int fd)
{
    const struct kit_order message = {.kind = kind};
    int r = start_helper(s);
    return r < 0 ? r
                 : fdpass_send_now(s->egress.helper, &message, sizeof(message), &fd, fd >= 0);
}

/* Takes an answer, which has no descriptors after a failure. Returns -EAGAIN when there is
 * none, another negative errno when hermes-network is of no use any more. */
static int receive_answer(
    struct spawner *s, enum kit_order_kind kind, struct kit_answer *ret, int fds[KIT_COUNT])
{
    unsigned count = 0;
    ssize_t n = fdpass_receive_now(s->egress.helper, ret, sizeof(*ret), fds, KIT_COUNT, &count);
    if (n == (ssize_t)sizeof(*ret) && ret->kind == kind && ret->part < PART_COUNT &&
        count == (kind == KIT_INSTALL && ret->error == 0 ? kit_size(ret) : 0))
        return 0;
    while (n > 0 && count)
        close_fd(&fds[--count]);
    return n < 0 ? (int)n : -EPIPE;
}

void egress_expect(struct spawner *s, int socket)
{
    cleanup_close int owned = socket;
    if (s->egress.source >= 0 || watch(s, socket, EVENT_EGRESS) < 0)
        return;
    s->egress.source = take_fd(&owned);
    (void)start_helper(s); /* the helper starts in parallel; egress_probe() reports a failure */
}

void egress_probe(struct spawner *s, struct spawn_reply *reply)
{
    struct kit_answer answer = {.part = PART_NAMESPACE};
    size_t at = 0;
    int r = send_order(s, KIT_PROBE, -1);
    struct pollfd ready = {.fd = s->egress.helper, .events = POLLIN};
    if (r == 0)
        r = poll(&ready, 1, PROBE_MS) == 1 ? receive_answer(s, KIT_PROBE, &answer, NULL)
                                           : -ETIMEDOUT;
    if (r < 0)
        lose_helper(s, r);
    reply->network_error = r < 0 ? r : answer.error;
    for (unsigned i = 0; i < PART_COUNT && at < sizeof(reply->network_missing); i++) {
        if (answer.missing & 1u << i)
            at += (size_t)snprintf(reply->network_missing + at,
                sizeof(reply->network_missing) - at, "%s%s", at ? ", " : "", part_names[i]);
    }
}

int egress_take_ready(struct spawner *s, struct box *box)
{
    struct network_kit kit;
    if (box->egress.channel < 0 || !network_take_kit(&s->network, &kit))
        return -1;
    memcpy(box->egress.fds, kit.fds, sizeof(kit.fds));
    box->egress.count = kit.count;
    box->egress.is_spoilt = true;
    return kit.ns;
}

void egress_forget(struct box *box)
{
    while (box->egress.count)
        close_fd(&box->egress.fds[--box->egress.count]);
}

int egress_install(struct spawner *s, struct box *box, egress_then *then)
{
    struct egress *e = &s->egress;
    box->egress.part = PART_NAMESPACE;
    int r = e->waiting_count < EGRESS_MAX_WAITING ? 0 : -EAGAIN;
    if (r == 0)
        r = send_order(s, KIT_INSTALL, box->network >= 0 ? box->network : box->pidfd);
    if (r < 0 && r != -EAGAIN)
        lose_helper(s, r);
    if (r < 0)
        return r;
    box->egress.is_spoilt = true;
    box->egress.then = then;
    if (!e->waiting_count)
        e->asked_ms = clock_ms();
    e->waiting[e->waiting_count++] = box;
    return 1;
}

int egress_equip(struct spawner *s, struct box *box, egress_then *then)
{
    return box->egress.channel < 0 || box->egress.count ? 0 : egress_install(s, box, then);
}

void egress_answered(struct spawner *s)
{
    struct kit_answer answer;
    int fds[KIT_COUNT];
    if (s->egress.helper < 0)
        return;
    int r = receive_answer(s, KIT_INSTALL, &answer, fds);
    if (r == -EAGAIN)
        return;
    if (r < 0 || !s->egress.waiting_count) {
        lose_helper(s, r < 0 ? r : -EPROTO);
        return;
    }
    unsigned count = answer.error ? 0 : kit_size(&answer);
    struct box *box = next_waiting(s);
    if (box) {
        memcpy(box->egress.fds, fds, sizeof(fds[0]) * count);
        box->egress.count = count;
        box->egress.part = answer.part;
        go_on(s, box, answer.error);
        return;
    }
    while (count)
        close_fd(&fds[--count]);
}

/* --- hermes-egress */

/* The present hermes-egress is gone, or ends now. */
static void lose_egress(struct egress *e)
{
    close_fd(&e->socket);
    e->owed_count = 0;
}

/* Tells hermes-egress of the box with this number: to adopt it, or that it is gone. */
static int tell(struct spawner *s, uint64_t number)
{
    struct egress_message message = {.kind = EGRESS_DROP, .box = number};
    int fds[EGRESS_ADOPT_FDS];
    unsigned count = 0;
    for (unsigned i = 0; i < s->box_end && !count; i++) {
        const struct box_egress *e = &s->boxes[i].egress;
        if (s->boxes[i].state == STATE_FREE || e->number != number)
            continue;
        message.kind = EGRESS_ADOPT;
        message.flags = e->count == KIT_COUNT ? 0 : EGRESS_NO_V6;
        message.owner = s->boxes[i].owner;
        memcpy(fds, e->fds, sizeof(fds[0]) * e->count);
        count = e->count;
        fds[count++] = e->channel;
    }
    return fdpass_send_now(s->egress.socket, &message, sizeof(message), fds, count);
}

/* Sends the messages that hermes-egress still has to get, as far as there is room. */
static void tell_owed(struct spawner *s)
{
    struct egress *e = &s->egress;
    while (e->owed_count) {
        int r = tell(s, e->owed[0]);
        /* ETOOMANYREFS: too many descriptors are on their way for a user without privileges */
        bool is_full = r == -EAGAIN || r == -ETOOMANYREFS;
        if (is_full && clock_ms() < e->told_ms + ROOM_MS)
            return;
        if (r < 0) {
            lose_egress(e);
            return;
        }
        e->told_ms = clock_ms();
        memmove(e->owed, e->owed + 1, --e->owed_count * sizeof(e->owed[0]));
    }
}

static void owe(struct spawner *s, uint64_t number)
{
    struct egress *e = &s->egress;
    if (e->socket < 0)
        return;
    if (e->owed_count == EGRESS_MAX_OWED) {
        lose_egress(e);
        return;
    }
    if (!e->owed_count)
        e->told_ms = clock_ms();
    e->owed[e->owed_count++] = number;
    tell_owed(s);
}

void egress_adopt(struct spawner *s, struct box *box)
{
    if (!box->egress.count)
        return;
    box->egress.number = ++s->egress.boxes;
    owe(s, box->egress.number);
}

bool egress_check(struct spawner *s)
{
    struct egress *e = &s->egress;
    if (e->waiting_count && clock_ms() > e->asked_ms + INSTALL_MS)
        lose_helper(s, -ETIMEDOUT);
    tell_owed(s);
    return e->waiting_count || e->owed_count;
}

void egress_arrived(struct spawner *s)
{
    char byte;
    int fd = -1;
    unsigned count = 0;
    ssize_t n = fdpass_receive_now(s->egress.source, &byte, 1, &fd, 1, &count);
    if (n == -EAGAIN)
        return;
    if (n <= 0) /* no new egress will come: no network any more */
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->egress.source, NULL);
    if (n != 1 || count != 1) {
        close_fd(&fd);
        return;
    }
    lose_egress(&s->egress);
    s->egress.socket = fd;
    for (unsigned i = 0; i < s->box_end; i++) {
        if (s->boxes[i].state != STATE_FREE && s->boxes[i].egress.number)
            owe(s, s->boxes[i].egress.number);
    }
}

/* COMMAND_NETWORK is done. */
static void answer_command(struct spawner *s, struct box *root, int error)
{
    const struct spawn_event event = {
        .kind = EVENT_NETWORK, .error = error, .wait_status = (int32_t)root->egress.part};
    if (error == 0)
        egress_adopt(s, root);
    else
        close_fd(&root->egress.channel);
    if (root->egress.asker)
        box_tell(root->egress.asker->socket, &event);
}

void egress_command(struct spawner *s, struct box *box, int *channel)
{
    struct box *root = &s->boxes[box->root];
    int r = root->egress.channel >= 0 ? -EEXIST : s->egress.source < 0 ? -ENOSYS : 0;
    if (r < 0) {
        box_tell(box->socket, &(struct spawn_event){.kind = EVENT_NETWORK, .error = r});
        return;
    }
    root->egress.channel = take_fd(channel);
    root->egress.asker = box;
    r = egress_equip(s, root, answer_command);
    if (r <= 0)
        answer_command(s, root, r);
}

void egress_drop(struct spawner *s, struct box *box)
{
    struct egress *e = &s->egress;
    struct box *root = &s->boxes[box->root];
    for (unsigned i = 0; box->egress.then && i < e->waiting_count; i++)
        e->waiting[i] = e->waiting[i] == box ? NULL : e->waiting[i];
    box->egress.then = NULL;
    if (root->egress.asker == box)
        root->egress.asker = NULL;
    uint64_t number = box->egress.number;
    box->egress.number = 0;
    if (number)
        owe(s, number);
    egress_forget(box);
    close_fd(&box->egress.channel);
}
