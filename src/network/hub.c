/* SPDX-License-Identifier: Apache-2.0 */

/* The thread and its links. All that comes over a channel is a stranger's: a message that is
 * not exactly what proto/network.h allows ends the link, and every record of it says that it is
 * incomplete. Nothing here waits without a deadline, and sends never block. */

#include "network/link.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/os/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    EVENTS = 32,   /* channels served before the lock is given back */
    MESSAGES = 16, /* messages of one channel in one turn */
    RETRY_S = 1,
};

void network_hub_answer(struct network_hub *hub, const struct network_answerer *answerer)
{
    (void)pthread_mutex_lock(&hub->lock);
    hub->answerer = answerer ? *answerer : (struct network_answerer){0};
    (void)pthread_mutex_unlock(&hub->lock);
}

void network_hub_init(struct network_hub *hub)
{
    *hub = (struct network_hub){.epoll_fd = -1, .stop_fd = -1};
    (void)pthread_mutex_init(&hub->lock, NULL);
}

/* The functions below are called with the hub's lock held. */

static void unref_locked(struct network_link *link)
{
    if (--link->refs > 0)
        return;
    close_fd(&link->fd);
    network_asker_free(link->asker);
    free(link->rows);
    free(link);
}

/* Nothing more will come over this link. The hub gives its reference back. */
static void end_link(struct network_link *link)
{
    struct network_link **at = &link->hub->first;
    if (link->fd < 0)
        return;
    tally_link_over(link);
    link->is_over = true;
    question_withdraw_all(link);
    (void)epoll_ctl(link->hub->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
    close_fd(&link->fd);
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    unref_locked(link);
}

static void drop_rows(struct network_link *link)
{
    free(link->rows);
    link->rows = NULL;
    link->row_count = 0;
}

int link_send(struct network_link *link, const void *message, size_t size)
{
    if (link->fd < 0)
        return -EPIPE;
    return send(link->fd, message, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* The egress before this one died. Attempts that it had not reported are lost. (The first
 * egress finds a policy in the channel and says no hello.) */
static bool on_hello(struct network_link *link)
{
    drop_rows(link);
    question_withdraw_all(link);
    if (link_send(link, &link->policy, sizeof(link->policy)) < 0)
        return false;
    tally_new_egress(link);
    return true;
}

static void count_totals(struct network_link *link, const struct network_record *record)
{
    struct network_totals *totals = &link->hub->totals;
    for (size_t i = 0; i < link->row_count; i++) {
        const struct network_row *row = &link->rows[i];
        if (row->is_allowed)
            totals->allowed += row->count;
        else
            totals->denied[row->reason] += row->count;
    }
    totals->sent += record->sent;
    totals->received += record->received;
    totals->more += record->more;
}

static void on_record(struct network_link *link, const struct network_record *record)
{
    count_totals(link, record);
    tally_record(link, record);
    drop_rows(link);
    link->is_over = link->is_over || !record->token; /* the last one of a box */
}

static bool take_rows(struct network_link *link, const struct network_rows *rows, size_t size)
{
    size_t max = rows->kind == NETWORK_TRIED ? 1 : NETWORK_ROWS_PER_MESSAGE;
    if (size < offsetof(struct network_rows, rows) || rows->count > max ||
        size != offsetof(struct network_rows, rows) + rows->count * sizeof(rows->rows[0]))
        return false;
    for (uint32_t i = 0; i < rows->count; i++) {
        if (!network_row_is_valid(&rows->rows[i]))
            return false;
    }
    if (rows->kind == NETWORK_TRIED) {
        if (rows->count)
            tally_tried(link, &rows->rows[0]);
        return true;
    }
    if (rows->count > NETWORK_MAX_ROWS - link->row_count)
        return false;
    if (!link->rows)
        link->rows = xcalloc(NETWORK_MAX_ROWS, sizeof(*link->rows));
    memcpy(&link->rows[link->row_count], rows->rows, rows->count * sizeof(rows->rows[0]));
    link->row_count += rows->count;
    return true;
}

/* False when egress may not send such a message, or the message cannot be answered. */
static bool take_message(struct network_link *link, const void *data, size_t size)
{
    uint32_t kind = 0;
    if (size < sizeof(kind) || link->is_over)
        return false;
    memcpy(&kind, data, sizeof(kind));
    switch (kind) {
    case NETWORK_HELLO:
        return size == sizeof(struct network_message) && on_hello(link);
    case NETWORK_TRIED:
    case NETWORK_ROWS:
        return take_rows(link, data, size);
    case NETWORK_RECORD:
        if (size == sizeof(struct network_record))
            on_record(link, data);
        return size == sizeof(struct network_record);
    case NETWORK_ASKED:
        return size == sizeof(struct network_question) && question_ask(link, data);
    case NETWORK_WITHDRAWN:
        if (size == sizeof(struct network_answer))
            question_withdraw(link, data);
        return size == sizeof(struct network_answer);
    default:
        return false;
    }
}

static void serve_link(struct network_link *link)
{
    struct network_rows *packet = &link->hub->packet;
    for (int i = 0; i < MESSAGES && link->fd >= 0; i++) {
        ssize_t n = recv(link->fd, packet, sizeof(*packet), MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        /* Linux reports once that the other end closed before it read everything. */
        if (n < 0 && errno == ECONNRESET)
            continue;
        if (n <= 0 || (size_t)n > sizeof(*packet) || !take_message(link, packet, (size_t)n)) {
            end_link(link);
            return;
        }
    }
}

static void *serve(void *context)
{
    struct network_hub *hub = context;
    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(hub->epoll_fd, events, EVENTS, -1);
        (void)pthread_mutex_lock(&hub->lock);
        bool is_stopping = hub->is_stopping;
        /* Only this thread ends links, so no link of these events is gone. */
        for (int i = 0; !is_stopping && i < count; i++) {
            if (events[i].data.ptr)
                serve_link(events[i].data.ptr);
        }
        (void)pthread_mutex_unlock(&hub->lock);
        if (is_stopping)
            return NULL;
    }
}

static int start_locked(struct network_hub *hub)
{
    struct epoll_event stop = {.events = EPOLLIN};
    if (hub->is_running)
        return 0;
    if (hub->epoll_fd < 0)
        hub->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (hub->stop_fd < 0)
        hub->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (hub->epoll_fd < 0 || hub->stop_fd < 0)
        return -errno;
    (void)epoll_ctl(hub->epoll_fd, EPOLL_CTL_ADD, hub->stop_fd, &stop);
    int r = thread_start(&hub->thread, serve, hub);
    hub->is_running = r == 0;
    return r;
}

/* From here on the functions take the lock themselves. */

void network_hub_done(struct network_hub *hub)
{
    if (hub->is_running) {
        (void)pthread_mutex_lock(&hub->lock);
        hub->is_stopping = true;
        (void)pthread_mutex_unlock(&hub->lock);
        (void)eventfd_write(hub->stop_fd, 1);
        (void)pthread_join(hub->thread, NULL);
    }
    for (struct network_link *link = hub->first, *next; link; link = next) {
        next = link->next;
        end_link(link);
    }
    close_fd(&hub->epoll_fd);
    close_fd(&hub->stop_fd);
    (void)pthread_mutex_destroy(&hub->lock);
}

void network_hub_totals(struct network_hub *hub, struct network_totals *ret)
{
    (void)pthread_mutex_lock(&hub->lock);
    *ret = hub->totals;
    (void)pthread_mutex_unlock(&hub->lock);
}

static int add_link(struct network_hub *hub, struct network_link *link)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    (void)pthread_mutex_lock(&hub->lock);
    int r = start_locked(hub);
    if (r == 0)
        r = link_send(link, &link->policy, sizeof(link->policy));
    if (r == 0 && epoll_ctl(hub->epoll_fd, EPOLL_CTL_ADD, link->fd, &event) < 0)
        r = -errno;
    if (r == 0) {
        link->refs++; /* the hub's */
        link->next = hub->first;
        hub->first = link;
    }
    (void)pthread_mutex_unlock(&hub->lock);
    return r;
}

static int failed(struct err *err, int r)
{
    return err_set(err, err_code_of(-r), -r, "cannot make a network channel: %s", strerror(-r));
}

int network_link_open(struct network_hub *hub, const struct network_policy *policy,
    const struct network_asker *asker, struct network_link **ret, int *ret_fd, struct err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return failed(err, -errno);
    struct network_link *link = xcalloc(1, sizeof(*link));
    link->hub = hub;
    link->refs = 1;
    link->fd = pair[0];
    link->policy.kind = NETWORK_POLICY;
    link->policy.policy = *policy;
    link->asker = network_asker_copy(asker);
    int r = add_link(hub, link);
    if (r < 0) {
        network_link_unref(link);
        (void)close(pair[1]);
        return failed(err, r);
    }
    *ret = link;
    *ret_fd = pair[1];
    return 0;
}

struct network_link *network_link_ref(struct network_link *link)
{
    if (!link)
        return NULL;
    (void)pthread_mutex_lock(&link->hub->lock);
    link->refs++;
    (void)pthread_mutex_unlock(&link->hub->lock);
    return link;
}

void network_link_unref(struct network_link *link)
{
    if (!link)
        return;
    struct network_hub *hub = link->hub;
    (void)pthread_mutex_lock(&hub->lock);
    unref_locked(link);
    (void)pthread_mutex_unlock(&hub->lock);
}

int network_link_change(
    struct network_link *link, const struct network_policy *policy, struct err *err)
{
    struct network_hub *hub = link->hub;
    struct network_policy_message *message = xcalloc(1, sizeof(*message));
    message->kind = NETWORK_POLICY;
    message->policy = *policy;
    (void)pthread_mutex_lock(&hub->lock);
    int r = link->is_over ? -EPIPE : link_send(link, message, sizeof(*message));
    if (r == 0)
        link->policy = *message;
    (void)pthread_mutex_unlock(&hub->lock);
    free(message);
    if (r == -EAGAIN) /* hermes-egress has not read the policies before this one yet */
        return err_retry(err,
            err_set(err, ERR_BUSY, EAGAIN,
                "the network of the box is being changed already; try again"),
            RETRY_S);
    return r == 0 ? 0
                  : err_set(err, ERR_UNAVAILABLE, -r,
                        "the network of the box cannot be changed now: %s; try again",
                        strerror(-r));
}

bool network_link_is_over(struct network_link *link)
{
    (void)pthread_mutex_lock(&link->hub->lock);
    bool is_over = link->is_over;
    (void)pthread_mutex_unlock(&link->hub->lock);
    return is_over;
}
