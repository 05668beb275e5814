/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about the order of builds: one at a time, keys in turns, equal builds together. */

#include "test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "service/build_queue.h"

/* A caller on a thread of its own. */
struct caller {
    struct build_queue *queue;
    struct build_call call;
    struct err err;
    pthread_t thread;
    int cancel_fd;
    int go_fd;  /* readable: end the turn */
    int result; /* of build_queue_enter() */
    int end;    /* result of the build */
    enum err_code end_code;
    unsigned *clock;
    unsigned at; /* when it had its turn, from 1 on; 0: never */
};

static void *call(void *context)
{
    struct caller *c = context;
    c->result = build_queue_enter(c->queue, &c->call, c->cancel_fd, &c->err);
    if (c->result != BUILD_TURN)
        return NULL;
    c->at = ++*c->clock; /* only one has the turn */
    struct pollfd go = {.fd = c->go_fd, .events = POLLIN};
    (void)poll(&go, 1, -1);
    struct err err = {.code = c->end_code};
    build_queue_leave(c->queue, &c->call, c->end, &err);
    return NULL;
}

static void start(
    struct caller *c, struct build_queue *queue, unsigned *clock, int owner, const char *recipe)
{
    size_t before = build_queue_count(queue);
    *c = (struct caller){
        .queue = queue, .clock = clock, .call = {.owner = owner, .recipe = recipe}};
    c->cancel_fd = eventfd(0, 0);
    c->go_fd = eventfd(0, 0);
    assert_int_equal(pthread_create(&c->thread, NULL, call, c), 0);
    while (build_queue_count(queue) == before)
        (void)poll(NULL, 0, 1);
}

static void signal_fd(int fd)
{
    const uint64_t one = 1;
    assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
}

static void join(struct caller *c)
{
    assert_int_equal(pthread_join(c->thread, NULL), 0);
    (void)close(c->cancel_fd);
    (void)close(c->go_fd);
}

static void keys_take_turns(void **state)
{
    struct build_queue *queue = build_queue_new();
    struct caller c[7];
    unsigned clock = 0;
    const struct {
        int owner;
        const char *recipe;
    } rows[] = {{0, "a"}, {0, "b"}, {0, "c"}, {0, "d"}, {1, "a"}, {2, "a"}, {1, "b"}};
    const unsigned order[] = {1, 4, 6, 7, 2, 3, 5};
    for (size_t i = 0; i < 7; i++)
        start(&c[i], queue, &clock, rows[i].owner, rows[i].recipe);
    for (size_t i = 0; i < 7; i++)
        signal_fd(c[i].go_fd);
    for (size_t i = 0; i < 7; i++) {
        join(&c[i]);
        assert_int_equal(c[i].at, order[i]);
    }
    assert_int_equal(build_queue_count(queue), 0);
    build_queue_free(queue);
}

static void a_key_has_some_places_and_joining_takes_none(void **state)
{
    struct build_queue *queue = build_queue_new();
    struct caller c[2 * BUILD_QUEUE_KEY_MAX];
    unsigned clock = 0;
    const char *const recipes[] = {"a", "b", "c", "d"};
    struct err err = {0};
    for (size_t i = 0; i < 2 * BUILD_QUEUE_KEY_MAX; i++)
        start(&c[i], queue, &clock, 0, recipes[i % BUILD_QUEUE_KEY_MAX]);
    struct build_call more = {.owner = 0, .recipe = "e"};
    assert_int_equal(build_queue_enter(queue, &more, -1, &err), -EBUSY);
    assert_int_equal(err.code, ERR_BUSY);
    assert_true(err.retry_s > 0);
    for (size_t i = 0; i < 2 * BUILD_QUEUE_KEY_MAX; i++)
        signal_fd(c[i].go_fd);
    for (size_t i = 0; i < 2 * BUILD_QUEUE_KEY_MAX; i++) {
        join(&c[i]);
        assert_int_equal(c[i].result, i < BUILD_QUEUE_KEY_MAX ? BUILD_TURN : 0);
    }
    assert_int_equal(clock, BUILD_QUEUE_KEY_MAX);
    build_queue_free(queue);
}

static void who_joined_gets_the_blame_of_a_recipe_and_nothing_else(void **state)
{
    struct build_queue *queue = build_queue_new();
    struct caller c[3];
    unsigned clock = 0;
    for (size_t i = 0; i < 3; i++)
        start(&c[i], queue, &clock, 5, "a");
    c[0].end = -ECANCELED; /* its client left: the next one builds */
    c[0].end_code = ERR_CONFLICT;
    c[1].end = -EBADMSG;
    c[1].end_code = ERR_BUILD_FAILED;
    for (size_t i = 0; i < 3; i++)
        signal_fd(c[i].go_fd);
    for (size_t i = 0; i < 3; i++)
        join(&c[i]);
    assert_int_equal(c[1].result, BUILD_TURN);
    assert_int_equal(c[2].result, -EBADMSG);
    assert_int_equal(c[2].err.code, ERR_BUILD_FAILED);
    assert_int_equal(clock, 2);
    build_queue_free(queue);
}

static void whoever_leaves_while_he_waits_hands_on_his_place(void **state)
{
    struct build_queue *queue = build_queue_new();
    struct caller c[4];
    unsigned clock = 0;
    start(&c[0], queue, &clock, 0, "a");
    start(&c[1], queue, &clock, 0, "b");
    start(&c[2], queue, &clock, 0, "b"); /* joins */
    start(&c[3], queue, &clock, 0, "b");
    signal_fd(c[1].cancel_fd);
    join(&c[1]);
    signal_fd(c[3].cancel_fd);
    join(&c[3]);
    assert_int_equal(c[1].result, -ECANCELED);
    assert_int_equal(c[3].result, -ECANCELED);
    signal_fd(c[0].go_fd);
    signal_fd(c[2].go_fd);
    join(&c[0]);
    join(&c[2]);
    assert_int_equal(c[2].result, BUILD_TURN);
    assert_int_equal(build_queue_count(queue), 0);
    build_queue_free(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_take_turns),
        cmocka_unit_test(a_key_has_some_places_and_joining_takes_none),
        cmocka_unit_test(who_joined_gets_the_blame_of_a_recipe_and_nothing_else),
        cmocka_unit_test(whoever_leaves_while_he_waits_hands_on_his_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
