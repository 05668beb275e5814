/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about admission: bounds, turns, quotas, leaving. */

#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "state/admit.h"

static struct key key_items[2] = {{.name = "a"}, {.name = "b"}};
static const struct keys two_keys = {.items = key_items, .count = 2};

static struct admit *make(uint32_t concurrency, uint32_t queue, uint64_t memory_mb)
{
    return admit_new(&(struct admit_options){.keys = &two_keys,
        .concurrency = concurrency,
        .queue = queue,
        .wait_ms = 5000,
        .memory_mb = memory_mb,
        .reserve_mb = memory_mb / 4 * 3,
        .processes = 1000,
        .sessions = 8,
        .sessions_per_key = 4});
}

static struct admit_need run_of(uint64_t memory_mb)
{
    return admit_need_run(&(struct box_need){.memory_mb = memory_mb, .processes = 1});
}

static struct admit_need session_of(uint64_t memory_mb)
{
    return admit_need_session(&(struct box_need){.memory_mb = memory_mb, .processes = 1});
}

static int begin(
    struct admit *a, int owner, uint64_t memory_mb, struct admit_ticket *ret, struct err *err)
{
    const struct admit_need need = run_of(memory_mb);
    return admit_begin(a, owner, &need, ret, err);
}

static int enter(struct admit *a, int owner, uint64_t memory_mb, struct admit_ticket *ret)
{
    struct err err = {0};
    int r = begin(a, owner, memory_mb, ret, &err);
    return r < 0 ? r : admit_wait(a, ret, -1, 0, &err);
}

static void past_the_queue_it_is_busy_with_an_estimate(void **state)
{
    struct admit *a = make(1, 0, 1000);
    struct admit_ticket one, two;
    struct err err = {0};

    assert_int_equal(enter(a, 0, 10, &one), 0);
    assert_true(begin(a, 0, 10, &two, &err) < 0);
    assert_int_equal(err.code, ERR_BUSY);
    assert_true(err.retry_s >= 1);
    admit_leave(a, &one, 0);
    assert_int_equal(enter(a, 0, 10, &two), 0);
    admit_leave(a, &two, 0);
    admit_free(a);
}

static void memory_is_never_promised_twice(void **state)
{
    struct admit *a = make(10, 10, 100);
    struct admit_ticket big, small;
    struct err err = {0};

    assert_int_equal(enter(a, 0, 80, &big), 0);
    assert_int_equal(begin(a, 1, 40, &small, &err), 0);
    assert_int_equal(small.place, PLACE_WAITING);
    admit_leave(a, &big, 0);
    assert_int_equal(small.place, PLACE_TAKEN);
    assert_int_equal(admit_wait(a, &small, -1, 0, &err), 0);
    admit_leave(a, &small, 0);
    admit_free(a);
}

static void keys_take_turns(void **state)
{
    struct admit *a = make(1, 10, 1000);
    struct admit_ticket first, of_a[3], of_b;
    struct err err = {0};

    assert_int_equal(enter(a, 0, 1, &first), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(begin(a, 0, 1, &of_a[i], &err), 0);
    assert_int_equal(begin(a, 1, 1, &of_b, &err), 0);
    admit_leave(a, &first, 0);
    struct admit_ticket *next = of_a[0].place == PLACE_TAKEN ? &of_a[0] : &of_b;
    assert_int_equal(next->place, PLACE_TAKEN);
    admit_leave(a, next, 0);
    assert_int_equal(of_a[0].place, PLACE_TAKEN);
    assert_int_equal(of_b.place, PLACE_TAKEN);
    assert_int_equal(of_a[1].place, PLACE_WAITING);
    admit_leave(a, next == &of_b ? &of_a[0] : &of_b, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(admit_wait(a, &of_a[i], -1, 0, &err), 0);
        if (i > 0)
            admit_leave(a, &of_a[i], 0);
    }
    assert_int_equal(admit_wait(a, &of_b, -1, 0, &err), 0);
    admit_free(a);
}

static void a_flood_of_one_key_makes_way_for_the_other(void **state)
{
    struct admit *a = make(1, 4, 1000);
    struct admit_ticket first, flood[4], of_b;
    struct err err = {0};

    assert_int_equal(enter(a, 0, 1, &first), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(begin(a, 0, 1, &flood[i], &err), 0);
    assert_int_equal(begin(a, 1, 1, &of_b, &err), 0);
    assert_int_equal(flood[3].place, PLACE_EVICTED);
    assert_true(admit_wait(a, &flood[3], -1, 0, &err) < 0);
    assert_int_equal(err.code, ERR_BUSY);
    admit_close(a);
    for (size_t i = 0; i < 3; i++)
        assert_true(admit_wait(a, &flood[i], -1, 0, &err) < 0);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_true(admit_wait(a, &of_b, -1, 0, &err) < 0);
    admit_free(a);
}

static void who_leaves_the_queue_frees_its_place(void **state)
{
    struct admit *a = make(1, 1, 1000);
    struct admit_ticket first, gone, next;
    struct admit_state now;
    struct err err = {0};
    int cancel = eventfd(1, EFD_CLOEXEC);

    assert_int_equal(enter(a, 0, 1, &first), 0);
    assert_int_equal(begin(a, 0, 1, &gone, &err), 0);
    assert_int_equal(admit_wait(a, &gone, cancel, 0, &err), -ECANCELED);
    admit_get_state(a, &now);
    assert_int_equal(now.waiting, 0);
    assert_int_equal(begin(a, 0, 1, &next, &err), 0);
    admit_leave(a, &first, 0);
    assert_int_equal(admit_wait(a, &next, -1, 0, &err), 0);
    admit_leave(a, &next, 0);
    (void)close(cancel);
    admit_free(a);
}

static void quotas_of_a_key_hold(void **state)
{
    struct key items[3] = {{.name = "slow", .rate_per_m = 2},
        {.name = "poor", .cpu_s_per_hour = 1}, {.name = "narrow", .concurrency = 1}};
    struct keys keys = {.items = items, .count = 3};
    struct admit *a = admit_new(&(struct admit_options){.keys = &keys,
        .concurrency = 8,
        .queue = 8,
        .wait_ms = 50,
        .memory_mb = 1000,
        .processes = 1000});
    struct admit_ticket t, second, third;
    struct err err = {0};

    for (int i = 0; i < 2; i++) {
        assert_int_equal(enter(a, 0, 1, &t), 0);
        admit_leave(a, &t, 0);
    }
    assert_true(begin(a, 0, 1, &t, &err) < 0);
    assert_int_equal(err.code, ERR_BUSY);
    assert_in_range(err.retry_s, 20, 31);

    assert_int_equal(enter(a, 1, 1, &t), 0);
    admit_leave(a, &t, 2000);
    assert_true(begin(a, 1, 1, &t, &err) < 0);
    assert_true(err.retry_s > 1000);

    assert_int_equal(enter(a, 2, 1, &t), 0);
    assert_int_equal(begin(a, 2, 1, &second, &err), 0);
    assert_int_equal(second.place, PLACE_WAITING);
    assert_true(begin(a, 2, 1, &third, &err) < 0);
    assert_true(admit_wait(a, &second, -1, 0, &err) < 0);
    assert_int_equal(err.code, ERR_BUSY);
    admit_leave(a, &t, 0);
    admit_free(a);
}

static void reserve(struct admit *a, int owner, uint64_t memory_mb, int wanted)
{
    struct err err = {0};
    const struct admit_need need = session_of(memory_mb);
    int r = admit_reserve(a, owner, &need, &err);
    assert_int_equal(r < 0 ? (int)err.code : 0, wanted);
}

static void give_back(struct admit *a, int owner, uint64_t memory_mb)
{
    const struct admit_need need = session_of(memory_mb);
    admit_give_back(a, owner, &need);
}

/* One key has a session and a run that does not fit beside it; the others go on, and so do its
 * own smaller runs. */
static void what_does_not_fit_is_passed_over(void **state)
{
    struct admit *a = make(4, 10, 1000);
    struct admit_ticket large, small, other;
    struct err err = {0};

    reserve(a, 0, 200, 0);
    assert_int_equal(begin(a, 0, 850, &large, &err), 0);
    assert_int_equal(large.place, PLACE_WAITING);
    assert_int_equal(begin(a, 1, 100, &other, &err), 0);
    assert_int_equal(other.place, PLACE_TAKEN);
    assert_int_equal(other.wake_fd, -1); /* it was not even queued */
    assert_int_equal(begin(a, 0, 100, &small, &err), 0);
    assert_int_equal(small.place, PLACE_TAKEN);
    admit_leave(a, &other, 0);
    admit_drop(a, &small);
    assert_int_equal(large.place, PLACE_WAITING);
    give_back(a, 0, 200);
    assert_int_equal(large.place, PLACE_TAKEN);
    admit_drop(a, &large);
    admit_free(a);
}

static void what_can_never_fit_is_refused_at_once(void **state)
{
    struct admit *a = make(4, 10, 1000);
    struct admit_ticket t;
    const uint64_t sizes[] = {876, 1001, UINT64_MAX - 1, UINT64_MAX};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct err err = {0};
        assert_true(begin(a, 0, sizes[i], &t, &err) < 0);
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.field, "limits.memory_mb");
        reserve(a, 0, sizes[i], ERR_INVALID);
    }
    reserve(
        a, 0, 564, ERR_INVALID); /* 750 are for sessions, three quarters of them for a key */
    reserve(a, 0, 563, 0);
    give_back(a, 0, 563);
    admit_free(a);
}

/* A large run of the same key waits for small ones to end, while those behind it wait, too, but
 * only for a short time. */
static void a_large_run_holds_back_its_own_key_for_a_short_time(void **state)
{
    struct admit *a = make(4, 10, 1000);
    struct admit_ticket first, large, small, other;
    struct err err = {0};

    assert_int_equal(enter(a, 0, 100, &first), 0);
    assert_int_equal(begin(a, 0, 800, &large, &err), 0);
    assert_int_equal(begin(a, 0, 10, &small, &err), 0);
    assert_int_equal(small.place, PLACE_WAITING);
    assert_int_equal(begin(a, 1, 10, &other, &err), 0);
    assert_int_equal(other.place, PLACE_TAKEN);
    admit_drop(a, &other);
    uint64_t until_ms = clock_ms() + 10000;
    while (small.place == PLACE_WAITING && clock_ms() < until_ms) {
        (void)usleep(20000);
        admit_tick(a);
    }
    assert_int_equal(small.place, PLACE_TAKEN);
    assert_int_equal(large.place, PLACE_WAITING);
    admit_drop(a, &small);
    admit_leave(a, &first, 0);
    assert_int_equal(large.place, PLACE_TAKEN);
    admit_drop(a, &large);
    admit_free(a);
}

/* The same, but the large run gives up. */
static void who_gives_up_holds_back_nobody(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct admit *a = make(4, 10, 1000);
        struct admit_ticket first, large, small;
        struct err err = {0};
        int cancel = eventfd(1, EFD_CLOEXEC);

        assert_int_equal(enter(a, 0, 100, &first), 0);
        assert_int_equal(begin(a, 0, 800, &large, &err), 0);
        assert_int_equal(begin(a, 0, 10, &small, &err), 0);
        if (i == 0)
            assert_int_equal(admit_wait(a, &large, cancel, 0, &err), -ECANCELED);
        else
            admit_drop(a, &large);
        assert_int_equal(small.place, PLACE_TAKEN);
        admit_drop(a, &large); /* of what is given up already: nothing */
        admit_drop(a, &small);
        admit_leave(a, &first, 0);
        (void)close(cancel);
        admit_free(a);
    }
}

/* Runs of one key fill the memory; what ends of them goes to the key below its share, and not
 * to more of the same. */
static void memory_is_saved_up_for_a_key_within_its_share(void **state)
{
    struct admit *a = make(20, 20, 1000);
    struct admit_ticket full[8], more, large, tiny;
    struct err err = {0};

    for (size_t i = 0; i < 8; i++)
        assert_int_equal(enter(a, 0, 100, &full[i]), 0);
    assert_int_equal(begin(a, 1, 500, &large, &err), 0);
    assert_int_equal(large.place, PLACE_WAITING);
    assert_int_equal(begin(a, 0, 50, &more, &err), 0);
    assert_int_equal(more.place, PLACE_WAITING);
    for (size_t i = 0; i < 2; i++)
        admit_leave(a, &full[i], 0);
    assert_int_equal(more.place, PLACE_WAITING);
    assert_int_equal(large.place, PLACE_WAITING);
    admit_leave(a, &full[2], 0);
    assert_int_equal(large.place, PLACE_TAKEN);
    assert_int_equal(more.place, PLACE_WAITING);
    admit_drop(a, &large);
    assert_int_equal(more.place, PLACE_TAKEN);
    admit_drop(a, &more);
    assert_int_equal(enter(a, 1, 1, &tiny), 0);
    admit_leave(a, &tiny, 0);
    for (size_t i = 3; i < 8; i++)
        admit_leave(a, &full[i], 0);
    admit_free(a);
}

static void places_above_a_share_are_lent(void **state)
{
    struct admit *a = make(4, 10, 1000);
    struct admit_ticket of_a[5], of_b[3];
    struct admit_state now;
    struct err err = {0};

    for (size_t i = 0; i < 5; i++)
        assert_int_equal(begin(a, 0, 1, &of_a[i], &err), 0);
    assert_int_equal(of_a[3].place, PLACE_TAKEN);
    assert_int_equal(of_a[4].place, PLACE_WAITING);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(begin(a, 1, 1, &of_b[i], &err), 0);
    assert_int_equal(of_b[1].place, PLACE_TAKEN);
    assert_int_equal(of_b[2].place, PLACE_WAITING); /* above its share, too */
    admit_get_state(a, &now);
    assert_int_equal(now.running, 6);
    assert_int_equal(now.running_max, 8);
    for (size_t i = 0; i < 3; i++)
        admit_drop(a, &of_b[i]);
    assert_int_equal(of_a[4].place, PLACE_WAITING);
    for (size_t i = 0; i < 5; i++)
        admit_drop(a, &of_a[i]);
    admit_free(a);
}

/* Shares shrink with each key that comes, so what earlier keys hold is above theirs. */
static void never_more_than_twice_the_places_are_lent(void **state)
{
    enum { KEYS = 8, PLACES = 8 };
    static struct key items[KEYS];
    static const struct keys keys = {.items = items, .count = KEYS};
    struct admit_ticket tickets[KEYS * PLACES];
    struct admit *a = admit_new(&(struct admit_options){.keys = &keys,
        .concurrency = PLACES,
        .queue = KEYS * PLACES,
        .wait_ms = 5000,
        .memory_mb = 1000,
        .reserve_mb = 100,
        .processes = 1000});
    struct admit_state now;
    struct err err = {0};
    for (int i = 0; i < KEYS * PLACES; i++)
        assert_int_equal(begin(a, i / PLACES, 1, &tickets[i], &err), 0);
    admit_get_state(a, &now);
    assert_int_equal(now.running, 2 * PLACES);
    assert_int_equal(now.running_max, 2 * PLACES);
    for (int i = 0; i < KEYS * PLACES; i++)
        admit_drop(a, &tickets[i]);
    admit_get_state(a, &now);
    assert_int_equal(now.running, 0);
    admit_free(a);
}

static void sessions_above_a_share_are_to_make_room(void **state)
{
    struct admit *a = make(4, 10, 1000);
    uint64_t excess[3];
    struct admit_ticket run;
    struct err err = {0};
    const struct admit_need half = session_of(375), more = session_of(376);

    reserve(a, 0, 280, 0);
    reserve(a, 0, 280, 0);
    reserve(a, 0, 10, ERR_BUSY); /* the last quarter is for others */
    assert_false(admit_find_excess(a, 0, &half, excess));
    assert_true(admit_find_excess(a, 1, &half, excess));
    assert_true(excess[1] > 0 && excess[0] == 0 && excess[2] == 0);
    assert_false(admit_find_excess(a, 1, &more, excess)); /* more than a share */
    assert_int_equal(begin(a, 1, 440, &run, &err), 0);
    assert_false(admit_find_excess(a, -1, NULL, excess)); /* it fits beside them */
    admit_drop(a, &run);
    assert_int_equal(begin(a, 1, 500, &run, &err), 0);
    assert_int_equal(run.place, PLACE_WAITING);
    assert_true(admit_find_excess(a, -1, NULL, excess));
    assert_true(excess[1] > 0);
    give_back(a, 0, 280);
    assert_int_equal(run.place, PLACE_TAKEN);
    assert_false(admit_find_excess(a, -1, NULL, excess));
    admit_drop(a, &run);
    give_back(a, 0, 280);
    admit_free(a);
}

/* An exec that waits for a tool: its place serves others meanwhile, and it is the next one
 * afterwards, however full the queue is. */
static void a_place_can_be_taken_again(void **state)
{
    struct admit *a = make(1, 2, 1000);
    struct admit_ticket exec, waiting[2];
    const struct admit_need need = admit_need_exec();
    struct err err = {0};

    assert_int_equal(admit_begin(a, 0, &need, &exec, &err), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(begin(a, 0, 1, &waiting[i], &err), 0);
    admit_drop(a, &exec);
    assert_int_equal(waiting[0].place, PLACE_TAKEN);
    struct admit_ticket last;
    assert_int_equal(begin(a, 0, 1, &last, &err), 0);
    admit_resume(a, &exec);
    assert_int_equal(exec.place, PLACE_WAITING);
    assert_true(exec.wake_fd >= 0);
    admit_drop(a, &waiting[0]);
    assert_int_equal(exec.place, PLACE_TAKEN);
    assert_int_equal(waiting[1].place, PLACE_WAITING);
    assert_int_equal(admit_wait(a, &exec, -1, 0, &err), 0);
    admit_drop(a, &exec);
    assert_int_equal(waiting[1].place, PLACE_TAKEN);
    admit_drop(a, &waiting[1]);
    admit_drop(a, &last);
    admit_free(a);
}

/* Workers of a judgement: large runs of another key in the queue take none of them. */
static void places_beside_are_kept_within_a_share(void **state)
{
    struct admit *a = make(4, 10, 1000);
    struct admit_ticket large, first, beside, above, other;
    const struct admit_need need = run_of(10);
    struct err err = {0};

    reserve(a, 0, 200, 0);
    assert_int_equal(begin(a, 0, 850, &large, &err), 0);
    assert_int_equal(enter(a, 1, 10, &first), 0);
    assert_true(admit_try(a, 1, &need, &beside));
    assert_false(admit_is_wanted(a, &first));
    assert_true(admit_try(a, 1, &need, &above));
    assert_true(admit_is_wanted(a, &first));
    admit_drop(a, &above);
    assert_false(admit_is_wanted(a, &first));
    assert_int_equal(begin(a, 1, 860, &other, &err), 0); /* of the same key */
    assert_true(admit_is_wanted(a, &first));
    assert_false(admit_try(a, 1, &need, &above));
    admit_drop(a, &other);
    admit_drop(a, &beside);
    admit_drop(a, &first);
    admit_drop(a, &large);
    give_back(a, 0, 200);
    admit_free(a);
}

struct crowd {
    struct admit *admit;
    int owner;
    atomic_uint *inside;
    atomic_uint *most;
    unsigned done;
};

static void *come_and_go(void *arg)
{
    struct crowd *c = arg;
    for (unsigned i = 0; i < 200; i++) {
        struct admit_ticket t;
        if (enter(c->admit, c->owner, 10, &t) < 0)
            continue;
        unsigned now = atomic_fetch_add(c->inside, 1) + 1;
        unsigned most = *c->most;
        while (now > most && !atomic_compare_exchange_weak(c->most, &most, now))
            ;
        c->done++;
        atomic_fetch_sub(c->inside, 1);
        admit_leave(c->admit, &t, 1);
    }
    return NULL;
}

static void many_threads_never_exceed_the_bounds(void **state)
{
    struct admit *a = make(4, 64, 30);
    atomic_uint inside = 0, most = 0;
    struct crowd crowds[16];
    pthread_t threads[16];
    struct admit_state now;

    for (int i = 0; i < 16; i++) {
        crowds[i] = (struct crowd){a, i % 2, &inside, &most, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &crowds[i]), 0);
    }
    unsigned done = 0;
    for (int i = 0; i < 16; i++) {
        (void)pthread_join(threads[i], NULL);
        done += crowds[i].done;
    }
    assert_int_equal(done, 16 * 200);
    assert_in_range(most, 1, 3); /* 30 MiB hold three runs of 10 */
    admit_get_state(a, &now);
    assert_int_equal(now.running, 0);
    assert_int_equal(now.waiting, 0);
    assert_int_equal(now.memory_promised_mb, 0);
    admit_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(past_the_queue_it_is_busy_with_an_estimate),
        cmocka_unit_test(memory_is_never_promised_twice),
        cmocka_unit_test(keys_take_turns),
        cmocka_unit_test(a_flood_of_one_key_makes_way_for_the_other),
        cmocka_unit_test(who_leaves_the_queue_frees_its_place),
        cmocka_unit_test(quotas_of_a_key_hold),
        cmocka_unit_test(what_does_not_fit_is_passed_over),
        cmocka_unit_test(what_can_never_fit_is_refused_at_once),
        cmocka_unit_test(a_large_run_holds_back_its_own_key_for_a_short_time),
        cmocka_unit_test(who_gives_up_holds_back_nobody),
        cmocka_unit_test(memory_is_saved_up_for_a_key_within_its_share),
        cmocka_unit_test(places_above_a_share_are_lent),
        cmocka_unit_test(never_more_than_twice_the_places_are_lent),
        cmocka_unit_test(sessions_above_a_share_are_to_make_room),
        cmocka_unit_test(a_place_can_be_taken_again),
        cmocka_unit_test(places_beside_are_kept_within_a_share),
        cmocka_unit_test(many_threads_never_exceed_the_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
