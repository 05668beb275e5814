/* SPDX-License-Identifier: Apache-2.0 */

/* See build_queue.h. Callers are in a list, in the order in which they came. Each sleeps on a
 * descriptor of its own. */

#include "service/build_queue.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum call_state { WAITING, JOINED, HAS_TURN, ENDED };
enum { RETRY_S = 60 };

struct build_queue {
    pthread_mutex_t lock;
    struct build_call *first;
    int last_owner; /* the owner that had the last turn */
};

struct build_queue *build_queue_new(void)
{
    struct build_queue *queue = xcalloc(1, sizeof(*queue));
    (void)pthread_mutex_init(&queue->lock, NULL);
    return queue;
}

void build_queue_free(struct build_queue *queue)
{
    if (queue)
        (void)pthread_mutex_destroy(&queue->lock);
    free(queue);
}

static void set_state(struct build_call *call, enum call_state state)
{
    const uint64_t one = 1;
    call->state = state;
    if (write(call->wake_fd, &one, sizeof(one)) < 0) /* cannot be full: it is written twice */
        errno = 0;
}

/* The owners are in a circle, by number. How far it is from the last one to this one. */
static unsigned distance(const struct build_queue *queue, int owner)
{
    return (unsigned)owner - (unsigned)queue->last_owner - 1;
}

/* If no build has the turn, gives it to the oldest build of the next owner. */
static void choose(struct build_queue *queue)
{
    struct build_call *next = NULL;
    for (struct build_call *c = queue->first; c; c = c->next) {
        if (c->state == HAS_TURN)
            return;
        if (c->state == WAITING &&
            (!next || distance(queue, c->owner) < distance(queue, next->owner)))
            next = c;
    }
    if (!next)
        return;
    queue->last_owner = next->owner;
    set_state(next, HAS_TURN);
}

static bool is_twin(const struct build_call *a, const struct build_call *b)
{
    return a != b && a->owner == b->owner && str_eq(a->recipe, b->recipe);
}

/* Whether a build like this one waits or runs, and how many hold a place. */
static bool has_twin(
    const struct build_queue *queue, const struct build_call *call, size_t *ret_own)
{
    bool found = false;
    size_t all = 0;
    size_t own = 0;
    for (const struct build_call *c = queue->first; c; c = c->next) {
        bool has_place = c->state == WAITING || c->state == HAS_TURN;
        found = found || (has_place && is_twin(c, call));
        all += has_place;
        own += has_place && c->owner == call->owner;
    }
    *ret_own = all >= BUILD_QUEUE_MAX ? SIZE_MAX : own;
    return found;
}

static int add(struct build_queue *queue, struct build_call *call, struct err *err)
{
    size_t own;
    bool joins = has_twin(queue, call, &own);
    if (!joins && own >= BUILD_QUEUE_KEY_MAX)
        return err_retry(err,
            err_set(err, ERR_BUSY, EBUSY,
                "%u builds wait already, the most %s; try again when one has ended",
                own == SIZE_MAX ? BUILD_QUEUE_MAX : BUILD_QUEUE_KEY_MAX,
                own == SIZE_MAX ? "of this server" : "of one key"),
            RETRY_S);
    struct build_call **end = &queue->first;
    while (*end)
        end = &(*end)->next;
    *end = call;
    call->next = NULL;
    call->state = joins ? JOINED : WAITING;
    choose(queue);
    return 0;
}

static void take_out(struct build_queue *queue, struct build_call *call)
{
    struct build_call **at = &queue->first;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
}

/* A call leaves without a result. The first call that joined it waits in its place. */
static void hand_on(struct build_queue *queue, const struct build_call *call)
{
    for (struct build_call *c = queue->first; c; c = c->next) {
        if (c->state == JOINED && is_twin(c, call)) {
            c->state = WAITING;
            return;
        }
    }
}

static int wait_for_change(const struct build_call *call, int cancel_fd)
{
    struct pollfd fds[] = {
        {.fd = call->wake_fd, .events = POLLIN}, {.fd = cancel_fd, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    return fds[0].revents ? 0 : -ECANCELED;
}

int build_queue_enter(
    struct build_queue *queue, struct build_call *call, int cancel_fd, struct err *err)
{
    call->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (call->wake_fd < 0)
        return err_set(err, ERR_UNAVAILABLE, errno,
            "the server has no descriptor left for this build; try again later");
    (void)pthread_mutex_lock(&queue->lock);
    int r = add(queue, call, err);
    (void)pthread_mutex_unlock(&queue->lock);
    if (r < 0) {
        close_fd(&call->wake_fd);
        return r;
    }
    (void)wait_for_change(call, cancel_fd);
    (void)pthread_mutex_lock(&queue->lock);
    bool has_turn = call->state == HAS_TURN;
    if (!has_turn) {
        take_out(queue, call);
        if (call->state == WAITING)
            hand_on(queue, call);
        choose(queue);
        close_fd(&call->wake_fd);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    if (has_turn)
        return BUILD_TURN;
    if (call->state != ENDED)
        return err_set(err, ERR_CONFLICT, ECANCELED, "the build was cancelled");
    if (call->result < 0)
        *err = call->err;
    return call->result;
}

void build_queue_leave(
    struct build_queue *queue, struct build_call *call, int result, const struct err *err)
{
    bool is_final = result == 0 || err->code == ERR_BUILD_FAILED;
    (void)pthread_mutex_lock(&queue->lock);
    take_out(queue, call);
    if (!is_final)
        hand_on(queue, call);
    for (struct build_call *c = queue->first; c && is_final; c = c->next) {
        if (c->state != JOINED || !is_twin(c, call))
            continue;
        c->result = result;
        c->err = *err;
        set_state(c, ENDED);
    }
    choose(queue);
    (void)pthread_mutex_unlock(&queue->lock);
    close_fd(&call->wake_fd);
}

size_t build_queue_count(struct build_queue *queue)
{
    size_t count = 0;
    (void)pthread_mutex_lock(&queue->lock);
    for (const struct build_call *c = queue->first; c; c = c->next)
        count++;
    (void)pthread_mutex_unlock(&queue->lock);
    return count;
}
