/* SPDX-License-Identifier: Apache-2.0 */

/* Network channels: the test is hermes-egress at the other end. */

#include "base/cleanup.h"
#include "network/entry.h"
#include "network/hub.h"
#include "test.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct world {
    struct network_hub hub;
    struct network_link *link;
    struct network_tally *tally;
    int fd; /* egress' end */
    struct network_policy_message policy;
};

static int open_world(void **state)
{
    static struct world w;
    static struct network_policy policy = {.mode = NETWORK_FULL};
    struct err err = {0};
    network_hub_init(&w.hub);
    assert_int_equal(network_link_open(&w.hub, &policy, NULL, &w.link, &w.fd, &err), 0);
    w.tally = network_tally_new(w.link, true);
    *state = &w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;
    network_tally_drop(w->tally);
    network_link_unref(w->link);
    close_fd(&w->fd);
    network_hub_done(&w->hub);
    return 0;
}

/* Takes a message that must be there or come soon. */
static ssize_t hear(struct world *w, void *to, size_t size)
{
    struct pollfd ready = {.fd = w->fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 10000), 1);
    return recv(w->fd, to, size, 0);
}

static void hear_policy(struct world *w, unsigned mode)
{
    assert_int_equal(hear(w, &w->policy, sizeof(w->policy)), sizeof(w->policy));
    assert_int_equal(w->policy.kind, NETWORK_POLICY);
    assert_int_equal(w->policy.policy.mode, mode);
}

static uint32_t hear_snapshot(struct world *w)
{
    struct network_message m;
    assert_int_equal(hear(w, &m, sizeof(m)), sizeof(m));
    assert_int_equal(m.kind, NETWORK_SNAPSHOT);
    return m.token;
}

static void tell(struct world *w, const void *message, size_t size)
{
    assert_int_equal(send(w->fd, message, size, MSG_NOSIGNAL), (ssize_t)size);
}

static void tell_hello(struct world *w)
{
    const struct network_message m = {.kind = NETWORK_HELLO};
    tell(w, &m, sizeof(m));
}

static struct network_row row(const char *host, unsigned reason, uint64_t count)
{
    struct network_row r = {.is_allowed = reason == 0,
        .reason = reason,
        .port = 443,
        .count = count,
        .sent = reason ? 0 : 10 * count,
        .received = reason ? 0 : 20 * count};
    (void)snprintf(r.host, sizeof(r.host), "%s", host);
    (void)address_parse(&r.address, "203.0.113.10");
    return r;
}

static void tell_rows(
    struct world *w, unsigned kind, const struct network_row *rows, uint32_t count)
{
    static struct network_rows m;
    m.kind = kind;
    m.count = count;
    memcpy(m.rows, rows, count * sizeof(*rows));
    tell(w, &m, offsetof(struct network_rows, rows) + count * sizeof(*rows));
}

static void tell_record(struct world *w, uint32_t token, uint64_t sent)
{
    const struct network_record m = {
        .kind = NETWORK_RECORD, .token = token, .sent = sent, .received = 2 * sent};
    tell(w, &m, sizeof(m));
}

static struct network_report *end_tally(struct network_tally *tally, bool is_over)
{
    network_tally_finish(tally, is_over);
    return network_tally_end(tally);
}

static void test_run(void **state)
{
    struct world *w = *state;
    const struct network_row rows[] = {
        row("ok.example.com", 0, 2), row("10.9.0.5", ADDRESS_PRIVATE, 3)};
    struct network_row tried;
    struct network_totals totals;
    struct pollfd wake = {.fd = network_tally_fd(w->tally), .events = POLLIN};
    hear_policy(w, NETWORK_FULL);
    assert_false(network_tally_next(w->tally, &tried));
    tell_rows(w, NETWORK_TRIED, &rows[1], 1);
    assert_int_equal(poll(&wake, 1, 10000), 1);
    assert_true(network_tally_next(w->tally, &tried));
    assert_string_equal(tried.host, "10.9.0.5");
    assert_false(network_tally_next(w->tally, &tried));
    tell_rows(w, NETWORK_ROWS, rows, 2);
    tell_record(w, 0, 20);
    close_fd(&w->fd);
    struct network_report *report = end_tally(take_ptr(w->tally), true);
    assert_true(report->is_complete);
    assert_int_equal(report->count, 2);
    assert_int_equal(report->sent, 20);
    json_t *json = network_report_json(report);
    char *text = json_dumps(json, JSON_COMPACT);
    assert_string_equal(text,
        "{\"mode\":\"full\",\"sent\":20,\"received\":40,\"allowed\":[{\"host\":\"ok.example."
        "com\",\"address\":\"203.0.113.10\",\"port\":443,\"protocol\":\"tcp\",\"count\":2,"
        "\"sent\":20,\"received\":40}],\"denied\":[{\"host\":\"10.9.0.5\",\"port\":443,"
        "\"protocol\":\"tcp\",\"count\":3,\"reason\":\"private\"}],\"more\":0,\"complete\":"
        "true}");
    free(text);
    json_decref(json);
    network_report_free(report);
    network_hub_totals(&w->hub, &totals);
    assert_int_equal(totals.allowed, 2);
    assert_int_equal(totals.denied[ADDRESS_PRIVATE], 3);
    assert_int_equal(totals.received, 40);
}

/* What egress owed when it died is lost; the answer says so and nobody waits. */
static void test_egress_gone(void **state)
{
    struct world *w = *state;
    const struct network_row rows[] = {row("ok.example.com", 0, 2)};
    tell_rows(w, NETWORK_ROWS, rows, 1);
    close_fd(&w->fd);
    struct network_report *report = end_tally(take_ptr(w->tally), true);
    assert_false(report->is_complete);
    assert_int_equal(report->count, 0);
    network_report_free(report);
    assert_true(network_link_is_over(w->link));
}

/* An egress that is silent for longer than the deadline. */
static void test_egress_silent(void **state)
{
    struct world *w = *state;
    struct network_report *report = end_tally(take_ptr(w->tally), true);
    assert_false(report->is_complete);
    network_report_free(report);
}

static void test_exec(void **state)
{
    struct world *w = *state;
    const struct network_row before[] = {row("before.example", 0, 1)};
    const struct network_row during[] = {row("during.example", REASON_NOT_LISTED, 1)};
    const struct network_row both[] = {row("both.example", 0, 1)};
    hear_policy(w, NETWORK_FULL);
    struct network_tally *first = network_tally_new(w->link, false);
    uint32_t begin = hear_snapshot(w);
    tell_rows(w, NETWORK_ROWS, before, 1);
    tell_record(w, begin, 1);
    struct network_tally *second = network_tally_new(w->link, false);
    begin = hear_snapshot(w);
    tell_rows(w, NETWORK_ROWS, during, 1);
    tell_record(w, begin, 2);
    tell_rows(w, NETWORK_ROWS, both, 1);
    tell_record(w, begin + 1, 4); /* answers the question that the next line asks */
    struct network_report *report = end_tally(second, false);
    assert_true(report->is_complete);
    assert_int_equal(report->count, 1);
    assert_string_equal(report->rows[0].host, "both.example");
    assert_int_equal(report->sent, 4);
    network_report_free(report);
    tell_record(w, begin + 2, 0);
    report = end_tally(first, false);
    assert_int_equal(report->count, 2);
    assert_int_equal(report->sent, 6);
    network_report_free(report);
    report = end_tally(take_ptr(w->tally), true); /* no last record came */
    assert_int_equal(report->count, 3);
    assert_false(report->is_complete);
    network_report_free(report);
}

static void test_next_egress(void **state)
{
    struct world *w = *state;
    static struct network_policy narrow = {.mode = NETWORK_ALLOW, .entry_count = 1};
    struct err err = {0};
    assert_int_equal(network_entry_parse(&narrow.entries[0], "example.com:443", &err), 0);
    hear_policy(w, NETWORK_FULL);
    assert_int_equal(network_link_change(w->link, &narrow, &err), 0);
    hear_policy(w, NETWORK_ALLOW);
    struct network_tally *exec = network_tally_new(w->link, false);
    uint32_t token = hear_snapshot(w);
    tell_hello(w); /* the next egress: what was narrowed stays narrow */
    hear_policy(w, NETWORK_ALLOW);
    assert_string_equal(w->policy.policy.entries[0].name, "example.com");
    assert_int_equal(hear_snapshot(w), token);
    tell_record(w, token, 0);
    tell_record(w, token + 1, 0);
    struct network_report *report = end_tally(exec, false);
    assert_int_equal(report->mode, NETWORK_ALLOW);
    assert_false(report->is_complete);
    network_report_free(report);
    close_fd(&w->fd);
    report = end_tally(take_ptr(w->tally), true);
    network_report_free(report);
    assert_true(network_link_change(w->link, &narrow, &err) < 0);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
}

/* --- questions */

struct heard {
    struct network_link *links[4]; /* references */
    uint64_t numbers[4];
    char hosts[4][NETWORK_NAME];
    size_t count;
    uint64_t withdrawn;
};

static void hear_question(
    void *context, struct network_link *link, uint64_t number, const struct network_row *what)
{
    struct heard *h = context;
    assert_true(h->count < 4);
    h->links[h->count] = link;
    h->numbers[h->count] = number;
    (void)snprintf(h->hosts[h->count++], sizeof(h->hosts[0]), "%s", what->host);
}

static void hear_withdrawal(void *context, struct network_link *link, uint64_t number)
{
    struct heard *h = context;
    h->withdrawn = number;
    h->links[h->count] = link;
    h->numbers[h->count++] = 0;
}

static void await_heard(struct world *w, const struct heard *h, size_t count)
{
    for (size_t now = 0; now < count;) {
        (void)poll(NULL, 0, 1);
        (void)pthread_mutex_lock(&w->hub.lock);
        now = h->count;
        (void)pthread_mutex_unlock(&w->hub.lock);
    }
}

static void ask_about(struct world *w, uint64_t token, const char *host)
{
    const struct network_question q = {
        .kind = NETWORK_ASKED, .token = token, .row = row(host, REASON_NOT_LISTED, 1)};
    tell(w, &q, sizeof(q));
}

/* The next egress counts its questions from 1 again. An approval that was given for a question
 * of the one before must not open what the new question of the same token asks for. */
static void test_late_answer_of_the_last_egress(void **state)
{
    struct world *w = *state;
    struct heard h = {0};
    struct network_answer answer;
    struct err err = {0};
    static struct network_policy policy = {.mode = NETWORK_ASK};
    struct network_asker *asker = network_asker_new("alice", "run_1", "", NULL);
    network_tally_drop(w->tally);
    network_link_unref(w->link);
    close_fd(&w->fd);
    network_hub_answer(
        &w->hub, &(struct network_answerer){
                     .context = &h, .ask = hear_question, .withdraw = hear_withdrawal});
    assert_int_equal(network_link_open(&w->hub, &policy, asker, &w->link, &w->fd, &err), 0);
    w->tally = network_tally_new(w->link, true);
    network_asker_free(asker);
    hear_policy(w, NETWORK_ASK);
    ask_about(w, 1, "good.example.com");
    await_heard(w, &h, 1);
    tell_hello(w);
    hear_policy(w, NETWORK_ASK);
    ask_about(w, 1, "evil.example.com");
    await_heard(w, &h, 3);
    assert_int_equal(h.withdrawn, h.numbers[0]);
    assert_string_equal(h.hosts[2], "evil.example.com");
    network_link_answer(w->link, h.numbers[0], 0, false, NULL); /* late: good.example.com */
    network_link_answer(w->link, h.numbers[2], REASON_NOT_APPROVED, false, NULL);
    assert_int_equal(hear(w, &answer, sizeof(answer)), sizeof(answer));
    assert_int_equal(answer.reason, REASON_NOT_APPROVED);
    assert_int_equal(answer.token, 1);
    for (size_t i = 0; i < h.count; i++)
        network_link_unref(h.links[i]);
}

/* Each of these ends the link at once. */
static void send_wrong(struct world *w, int which)
{
    struct network_row bad = row("ok.example.com", 0, 1);
    static struct network_rows many = {.kind = NETWORK_ROWS, .count = 3};
    const struct network_record record = {.kind = NETWORK_RECORD};
    uint32_t word = 77;
    switch (which) {
    case 0:
        tell(w, "x", 1);
        return;
    case 1:
        tell(w, &word, sizeof(word));
        return;
    case 2: /* more rows than there are bytes */
        tell(w, &many, offsetof(struct network_rows, rows) + 2 * sizeof(bad));
        return;
    case 3:
        tell(w, &record, sizeof(record) - 1);
        return;
    case 4:
        memset(bad.host, 'a', sizeof(bad.host)); /* no NUL */
        break;
    case 5:
        (void)snprintf(bad.host, sizeof(bad.host), "a\x1b[2J");
        break;
    case 6:
        (void)snprintf(bad.host, sizeof(bad.host), "b\xc3\xbc");
        break;
    case 7:
        bad.protocol = NETWORK_PROTOCOL_COUNT;
        break;
    case 8:
        bad.is_allowed = 0;
        bad.reason = REASON_END;
        break;
    case 9:
        bad.reason = REASON_NOT_LISTED; /* and allowed */
        break;
    case 10: /* more rows than a record has */
        for (unsigned i = 0; i < NETWORK_MAX_ROWS; i++)
            tell_rows(w, NETWORK_ROWS, &bad, 1);
        break;
    default: /* TRIED has one row */
        many.kind = NETWORK_TRIED;
        many.count = 2;
        many.rows[0] = many.rows[1] = bad;
        tell(w, &many, offsetof(struct network_rows, rows) + 2 * sizeof(bad));
        return;
    }
    tell_rows(w, NETWORK_ROWS, &bad, 1);
}

static void test_wrong_messages(void **state)
{
    (void)state;
    for (int which = 0; which < 12; which++) {
        void *inner = NULL;
        (void)open_world(&inner);
        struct world *w = inner;
        send_wrong(w, which);
        struct pollfd gone = {.fd = w->fd, .events = POLLRDHUP};
        assert_int_equal(poll(&gone, 1, 10000), 1);
        struct network_report *report = end_tally(take_ptr(w->tally), true);
        assert_false(report->is_complete);
        network_report_free(report);
        (void)close_world(&inner);
    }
}

static void test_rows_merge(void **state)
{
    (void)state;
    struct network_report *report = network_report_new(NETWORK_FULL);
    struct network_row r = row("a.example", 0, 1);
    network_report_add(report, &r);
    network_report_add(report, &r);
    assert_int_equal(report->count, 1);
    assert_int_equal(report->rows[0].count, 2);
    assert_int_equal(report->rows[0].received, 40);
    for (unsigned i = 1; i < NETWORK_MAX_ROWS + 5; i++) {
        r.port = (uint16_t)i;
        network_report_add(report, &r);
    }
    assert_int_equal(report->count, NETWORK_MAX_ROWS);
    assert_int_equal(report->more, 4 + 1); /* port 443 was one of them */
    network_report_free(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_run, open_world, close_world),
        cmocka_unit_test_setup_teardown(test_egress_gone, open_world, close_world),
        cmocka_unit_test_setup_teardown(test_egress_silent, open_world, close_world),
        cmocka_unit_test_setup_teardown(test_exec, open_world, close_world),
        cmocka_unit_test_setup_teardown(test_next_egress, open_world, close_world),
        cmocka_unit_test_setup_teardown(
            test_late_answer_of_the_last_egress, open_world, close_world),
        cmocka_unit_test(test_wrong_messages),
        cmocka_unit_test(test_rows_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
