/* SPDX-License-Identifier: Apache-2.0 */

/* See connect.h. The hub must not wait for SQLite, so it only puts questions into a list. A
 * withdrawn question is lost: no attempt in the box waits for it any more. */

#include "approval/connect.h"

#include "base/address.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/os/thread.h"
#include "network/entry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { EVENTS = 32 };

struct ask {
    struct ask *next;
    struct network_link *link; /* a reference */
    uint64_t number;           /* of the question */
    bool is_withdrawal;
    struct network_row row;
    struct approval *approval;
};

struct connect_asks {
    struct approvals *approvals;
    struct network_hub *hub;
    int epoll_fd;
    int wake_fd;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the members below */
    bool is_running;
    bool is_stopping;
    struct ask *news; /* the newest first */
    struct ask *open; /* used by the thread only */
};

static void free_ask(struct ask *ask)
{
    approval_drop(ask->approval);
    network_link_unref(ask->link);
    free(ask);
}

/* --- the thread */

static int make_effect(const struct network_row *row, struct effect *ret, struct err *err)
{
    static const struct address unknown;
    char address[ADDRESS_TEXT];
    bool has_address = memcmp(&row->address, &unknown, sizeof(unknown)) != 0;
    if (has_address)
        address_print(&row->address, address);
    json_t *fields = json_pack("{s:s, s:s?, s:i, s:s}", "host", row->host, "address",
        has_address ? address : NULL, "port", (int)row->port, "protocol",
        network_protocol_name(row->protocol));
    int r = effect_make(EFFECT_NET_CONNECT, fields, ret, err);
    json_decref(fields);
    return r;
}

/* Why egress refuses the attempts; 0: it does not. */
static uint32_t reason_of(int r, const struct err *err)
{
    if (r == 0)
        return 0;
    return err->code == ERR_APPROVAL_UNAVAILABLE ? REASON_NO_APPROVER
           : err->code == ERR_BUSY               ? REASON_QUESTION_LIMIT
                                                 : REASON_NOT_APPROVED;
}

/* An approval without an id was not asked: a rule or an earlier grant decided it. */
static void answer(struct ask *ask, uint32_t reason)
{
    bool is_asked = ask->approval && approval_id(ask->approval)[0];
    network_link_answer(ask->link, ask->number, reason, !is_asked,
        is_asked ? approval_json(ask->approval) : NULL);
}

/* Asks. Returns false when it is answered already. */
static bool begin(struct connect_asks *asks, struct ask *ask)
{
    const struct network_asker *by = network_link_asker(ask->link);
    const struct approval_asker asker = {
        .owner = by->owner, .run = by->run, .session = by->session, .box = by->box};
    struct effect effect = {0};
    struct err err = {0};
    int r = make_effect(&ask->row, &effect, &err);
    if (r == 0)
        r = approvals_ask(asks->approvals, &effect, &asker, &ask->approval, &err);
    if (r == 0)
        r = approval_verdict(ask->approval, &err);
    effect_done(&effect);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = ask};
    if (r == -EAGAIN &&
        epoll_ctl(asks->epoll_fd, EPOLL_CTL_ADD, approval_fd(ask->approval), &event) == 0)
        return true;
    answer(ask, reason_of(r, &err));
    return false;
}

static void remove_open(struct connect_asks *asks, struct ask *ask)
{
    struct ask **at = &asks->open;
    while (*at != ask)
        at = &(*at)->next;
    *at = ask->next;
    (void)epoll_ctl(asks->epoll_fd, EPOLL_CTL_DEL, approval_fd(ask->approval), NULL);
    free_ask(ask);
}

static void withdraw(struct connect_asks *asks, const struct ask *what)
{
    struct ask *ask = asks->open;
    while (ask && (ask->link != what->link || ask->number != what->number))
        ask = ask->next;
    if (ask)
        remove_open(asks, ask);
}

/* The news in their order. */
static struct ask *take_news(struct connect_asks *asks)
{
    struct ask *list = NULL;
    eventfd_t count;
    (void)eventfd_read(asks->wake_fd, &count);
    (void)pthread_mutex_lock(&asks->lock);
    for (struct ask *ask; (ask = asks->news);) {
        asks->news = ask->next;
        ask->next = list;
        list = ask;
    }
    (void)pthread_mutex_unlock(&asks->lock);
    return list;
}

static void serve_news(struct connect_asks *asks)
{
    for (struct ask *ask = take_news(asks), *next; ask; ask = next) {
        next = ask->next;
        if (ask->is_withdrawal) {
            withdraw(asks, ask);
            free_ask(ask);
        } else if (begin(asks, ask)) {
            ask->next = asks->open;
            asks->open = ask;
        } else {
            free_ask(ask);
        }
    }
}

static void *serve(void *context)
{
    struct connect_asks *asks = context;
    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(asks->epoll_fd, events, EVENTS, -1);
        (void)pthread_mutex_lock(&asks->lock);
        bool is_stopping = asks->is_stopping;
        (void)pthread_mutex_unlock(&asks->lock);
        if (is_stopping)
            return NULL;
        for (int i = 0; i < count; i++) {
            struct ask *ask = events[i].data.ptr;
            struct err err = {0};
            int r = ask ? approval_verdict(ask->approval, &err) : -EAGAIN;
            if (r == -EAGAIN)
                continue;
            answer(ask, reason_of(r, &err));
            remove_open(asks, ask);
        }
        serve_news(asks); /* last: it ends some of the questions above */
    }
}

/* --- the hub's side */

static void put(struct connect_asks *asks, struct ask *ask)
{
    (void)pthread_mutex_lock(&asks->lock);
    if (!asks->is_running)
        asks->is_running = thread_start(&asks->thread, serve, asks) == 0;
    ask->next = asks->news;
    asks->news = ask;
    (void)pthread_mutex_unlock(&asks->lock);
    (void)eventfd_write(asks->wake_fd, 1);
}

static void on_ask(
    void *context, struct network_link *link, uint64_t number, const struct network_row *what)
{
    struct ask *ask = xcalloc(1, sizeof(*ask));
    ask->link = link;
    ask->number = number;
    ask->row = *what;
    put(context, ask);
}

static void on_withdraw(void *context, struct network_link *link, uint64_t number)
{
    struct ask *ask = xcalloc(1, sizeof(*ask));
    ask->link = link;
    ask->number = number;
    ask->is_withdrawal = true;
    put(context, ask);
}

struct connect_asks *connect_asks_open(struct approvals *approvals, struct network_hub *hub)
{
    struct connect_asks *asks = xcalloc(1, sizeof(*asks));
    struct epoll_event wake = {.events = EPOLLIN};
    asks->approvals = approvals;
    asks->hub = hub;
    asks->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    asks->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void)pthread_mutex_init(&asks->lock, NULL);
    if (asks->epoll_fd < 0 || asks->wake_fd < 0 ||
        epoll_ctl(asks->epoll_fd, EPOLL_CTL_ADD, asks->wake_fd, &wake) < 0)
        log_event(LOG_WARN, "connections of boxes cannot be asked about", (char *)NULL);
    else
        network_hub_answer(hub, &(struct network_answerer){.context = asks,
                                    .ask = on_ask,
                                    .withdraw = on_withdraw,
                                    .wait_max_ns = approvals_wait_max_ms(approvals) * 1000000});
    return asks;
}

void connect_asks_close(struct connect_asks *asks)
{
    if (!asks)
        return;
    network_hub_answer(asks->hub, NULL);
    (void)pthread_mutex_lock(&asks->lock);
    bool is_running = asks->is_running;
    asks->is_stopping = true;
    (void)pthread_mutex_unlock(&asks->lock);
    (void)eventfd_write(asks->wake_fd, 1);
    if (is_running)
        (void)pthread_join(asks->thread, NULL);
    for (struct ask *ask = take_news(asks), *next; ask; ask = next) {
        next = ask->next;
        free_ask(ask);
    }
    while (asks->open)
        remove_open(asks, asks->open);
    close_fd(&asks->epoll_fd);
    close_fd(&asks->wake_fd);
    (void)pthread_mutex_destroy(&asks->lock);
    free(asks);
}
