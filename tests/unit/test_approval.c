/* SPDX-License-Identifier: Apache-2.0 */

/* Effects, rules, the pipeline, and approvals from question to answer. */

#include "approval/approval.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct effect make(const char *text)
{
    struct effect effect = {0};
    struct err err = {0};
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    if (effect_read(json, &effect, &err) < 0)
        fail_msg("%s", err.message);
    json_decref(json);
    return effect;
}

static struct effect connect_to(const char *host, int port)
{
    char text[256];
    (void)snprintf(text, sizeof(text),
        "{\"kind\":\"net_connect\",\"host\":\"%s\",\"port\":%d,\"protocol\":\"tcp\","
        "\"address\":\"93.184.216.34\"}",
        host, port);
    return make(text);
}

static int read_rules(const char *text, struct rules *ret, struct err *err)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    int r = rules_read(json, ret, err);
    json_decref(json);
    return r;
}

static void the_canonical_form_is_one_text(void **state)
{
    struct effect a = make("{\"kind\":\"tool_call\",\"tool\":\"x.y\",\"arguments\":{\"b\":1,"
                           "\"a\":2}}");
    struct effect b = make("{\"arguments\":{\"a\":2,\"b\":1},\"tool\":\"x.y\",\"account\":null,"
                           "\"kind\":\"tool_call\"}");
    assert_string_equal(a.text, b.text);
    assert_string_equal(a.digest, b.digest);
    assert_non_null(strstr(a.text, "\"account\":null"));
    effect_done(&a);
    effect_done(&b);
}

static void grants_bind_what_matters_only(void **state)
{
    struct effect a = connect_to("example.com", 443);
    struct effect b = make("{\"kind\":\"net_connect\",\"host\":\"example.com\",\"port\":443,"
                           "\"protocol\":\"tcp\",\"address\":\"93.184.216.35\"}");
    struct effect c = connect_to("example.com", 444);
    assert_string_equal(a.digest, b.digest); /* another address of the same name */
    assert_string_not_equal(a.text, b.text);
    assert_string_not_equal(a.digest, c.digest);
    effect_done(&a);
    effect_done(&b);
    effect_done(&c);
}

static void a_host_has_one_spelling(void **state)
{
    const char *rows[][2] = {{"Example.COM", "example.com"}, {"example.com.", "example.com"},
        {"2001:DB8:0:0::1", "2001:db8::1"}, {"::FFFF:192.0.2.7", "192.0.2.7"},
        {"XN--MNCHEN-3ya.de", "xn--mnchen-3ya.de"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct effect a = connect_to(rows[i][0], 443);
        struct effect b = connect_to(rows[i][1], 443);
        assert_string_equal(a.digest, b.digest);
        assert_string_equal(json_string_value(json_object_get(a.json, "host")), rows[i][1]);
        effect_done(&a);
        effect_done(&b);
    }
}

static void wrong_fields_are_refused(void **state)
{
    static const char *const wrong[] = {"{\"kind\":\"nothing\"}", "{\"kind\":\"mount_rw\"}",
        "{\"kind\":\"mount_rw\",\"mount\":\"a\",\"path\":1}",
        "{\"kind\":\"mount_rw\",\"mount\":\"a\",\"path\":\"/mnt/a\",\"more\":1}",
        "{\"kind\":\"mount_rw\",\"mount\":\"a\\u0000b\",\"path\":\"/mnt/a\"}",
        "{\"kind\":\"tool_call\",\"tool\":\"t\",\"arguments\":{\"a\":\"b\\u0000c\"}}",
        "{\"kind\":\"tool_call\",\"tool\":\"t\",\"arguments\":{\"a\":[{\"b\":\"\\u0000\"}]}}",
        "{\"kind\":\"host_exec\",\"backend\":\"b\",\"argv\":[\"a\",1]}"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct effect effect = {0};
        struct err err = {0};
        json_t *json = json_loads(wrong[i], JSON_ALLOW_NUL, NULL);
        assert_int_equal(effect_read(json, &effect, &err), -EINVAL);
        assert_true(err.field[0]);
        json_decref(json);
    }
}

static bool matches(const char *pattern, const char *value, enum effect_match match)
{
    json_t *p = json_loads(pattern, JSON_DECODE_ANY, NULL);
    json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(p);
    assert_non_null(v);
    bool result = pattern_matches(p, v, match);
    json_decref(p);
    json_decref(v);
    return result;
}

static void patterns_match_what_they_say(void **state)
{
    static const struct {
        enum effect_match match;
        const char *pattern, *value;
        bool matches;
    } rows[] = {
        {MATCH_GLOB, "\"github.*.*.issues.*\"", "\"github.a.b.issues.create\"", true},
        {MATCH_GLOB, "\"github.*.issues.*\"", "\"github.a.b.issues.create\"", false},
        {MATCH_GLOB, "\"github.**\"", "\"github.a.b.issues.create\"", true},
        {MATCH_GLOB, "[\"a\", \"b*\"]", "\"bcd\"", true},
        {MATCH_GLOB, "\"a\"", "1", false},
        {MATCH_HOST, "\"*.example.com\"", "\"a.b.example.com\"", true},
        {MATCH_HOST, "\"*.example.com\"", "\"A.EXAMPLE.COM\"", true},
        {MATCH_HOST, "\"*.example.com\"", "\"example.com\"", false},
        {MATCH_HOST, "\"*.example.com\"", "\"evilexample.com\"", false},
        {MATCH_HOST, "\"example.com\"", "\"example.com.evil\"", false},
        {MATCH_HOST, "\"*\"", "\"anything\"", true},
        {MATCH_ADDRESS, "\"203.0.113.0/24\"", "\"203.0.113.9\"", true},
        {MATCH_ADDRESS, "\"203.0.113.0/24\"", "\"203.0.114.9\"", false},
        {MATCH_ADDRESS, "\"203.0.113.0/24\"", "null", false},
        {MATCH_NUMBER, "443", "443", true},
        {MATCH_NUMBER, "\"80-90\"", "85", true},
        {MATCH_NUMBER, "\"80-90\"", "91", false},
        {MATCH_NUMBER, "\"80-90\"", "85.0", true},
        {MATCH_NUMBER, "\"80-90\"", "90.5", false},
        {MATCH_NUMBER, "443", "443.0", true},
        {MATCH_OBJECT, "{\"a\": 5}", "{\"a\": 5.0}", true},
        {MATCH_NUMBER, "[80, \"1000-2000\"]", "1500", true},
        {MATCH_WORDS, "[\"git\", \"push\", \"**\"]", "[\"git\", \"push\", \"a\", \"b\"]", true},
        {MATCH_WORDS, "[\"git\", \"push\"]", "[\"git\", \"push\", \"--force\"]", false},
        {MATCH_WORDS, "[\"git\", \"*\"]", "[\"git\"]", false},
        {MATCH_OBJECT, "{\"a\": {\"b\": \"x*\"}}", "{\"a\": {\"b\": \"xy\", \"c\": 1}}", true},
        {MATCH_OBJECT, "{\"a\": 1}", "{\"a\": 2}", false},
        {MATCH_OBJECT, "{\"a\": 1}", "{}", false},
        {MATCH_FLAG, "true", "true", true},
        {MATCH_FLAG, "true", "1", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (matches(rows[i].pattern, rows[i].value, rows[i].match) != rows[i].matches)
            fail_msg("%s and %s", rows[i].pattern, rows[i].value);
    }
}

#define EXAMPLE                                                                                \
    "\"examples\": {\"match\": [{\"host\": \"a.example.com\", \"port\": 443, \"protocol\": "   \
    "\"tcp\"}]}"

static void rules_are_checked_when_they_are_read(void **state)
{
    static const struct {
        const char *text, *field;
    } rows[] = {
        {"{\"rules\": [{\"effect\": \"no\", \"match\": {}, \"decision\": \"deny\", " EXAMPLE
         "}]}",
            "rules[0].effect"},
        {"{\"rules\": [{\"effect\": \"net_connect\", \"match\": {}, \"decision\": "
         "\"maybe\", " EXAMPLE "}]}",
            "rules[0].decision"},
        {"{\"rules\": [{\"effect\": \"net_connect\", \"match\": {\"hots\": \"a\"}, "
         "\"decision\": \"deny\", " EXAMPLE "}]}",
            "rules[0].match.hots"},
        {"{\"rules\": [{\"effect\": \"net_connect\", \"match\": {\"port\": \"x\"}, "
         "\"decision\": \"deny\", " EXAMPLE "}]}",
            "rules[0].match.port"},
        {"{\"rules\": [{\"effect\": \"net_connect\", \"match\": {\"host\": \"a*.b\"}, "
         "\"decision\": \"deny\", " EXAMPLE "}]}",
            "rules[0].match.host"},
        /* It would match its own example, and no host of a box. */
        {"{\"rules\": [{\"effect\": \"net_connect\", \"match\": {\"host\": \"b\u00fc.de\"}, "
         "\"decision\": \"deny\", \"examples\": {\"match\": [{\"host\": \"b\u00fc.de\", "
         "\"port\": 1, \"protocol\": \"tcp\"}]}}]}",
            "rules[0].match.host"},
        {"{\"rules\": [{\"effect\": \"net_connect\", \"match\": {}, \"decision\": \"deny\"}]}",
            "rules[0].examples"},
        {"{\"rules\": [{\"effect\": \"net_connect\", \"match\": {\"host\": \"b.example.com\"}, "
         "\"decision\": \"deny\", " EXAMPLE "}]}",
            "rules[0].examples.match[0]"},
        {"{\"rules\": [{\"effect\": \"net_connect\", \"match\": {}, \"decision\": \"deny\", "
         "\"examples\": {\"match\": [{\"host\": \"a\", \"port\": 1, \"protocol\": \"tcp\"}], "
         "\"no_match\": [{\"host\": \"b\", \"port\": 1, \"protocol\": \"tcp\"}]}}]}",
            "rules[0].examples.no_match[0]"},
        {"{\"rules\": [{\"effect\": \"net_connect\", \"match\": {}, \"decision\": \"allow\", "
         "\"require_human\": true, " EXAMPLE "}]}",
            "rules[0].require_human"},
        {"{\"rules\": [], \"more\": 1}", "more"},
        {"{}", "rules"},
        {"{\"rules\": [{\"effect\": \"net_connect\", \"matches\": {}, \"decision\": "
         "\"deny\", " EXAMPLE "}]}",
            "rules[0].matches"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rules rules = {0};
        struct err err = {0};
        assert_int_equal(read_rules(rows[i].text, &rules, &err), -EINVAL);
        assert_string_equal(err.field, rows[i].field);
    }
}

#define RULE(host, decision)                                                                   \
    "{\"effect\": \"net_connect\", \"match\": {\"host\": \"" host                              \
    "\"}, \"decision\": \"" decision "\", " EXAMPLE "}"

static enum ruling_kind rule(const char *rules_text, const char *host, enum approval_mode mode,
    bool has_grant, enum ruling_source *ret_source)
{
    struct rules rules = {0};
    struct err err = {0};
    struct ruling ruling;
    struct effect effect = connect_to(host, 443);
    if (read_rules(rules_text, &rules, &err) < 0)
        fail_msg("%s", err.message);
    const struct ruling_facts facts = {
        .rules = &rules, .mode = mode, .has_grant = has_grant, .grant_is_human = true};
    ruling_make(&effect, &facts, &ruling);
    *ret_source = ruling.source;
    rules_done(&rules);
    effect_done(&effect);
    return ruling.kind;
}

static void a_rule_finds_a_host_however_it_is_spelled(void **state)
{
    const char *spellings[] = {"{\"rules\": [" RULE("A.Example.com", "deny") "]}",
        "{\"rules\": [" RULE("a.example.com.", "deny") "]}",
        "{\"rules\": [" RULE("*.EXAMPLE.com.", "deny") "]}"};
    enum ruling_source source;
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        assert_int_equal(
            rule(spellings[i], "a.example.com", APPROVAL_OFF, false, &source), RULING_DENIED);
        assert_int_equal(
            rule(spellings[i], "A.EXAMPLE.COM.", APPROVAL_OFF, false, &source), RULING_DENIED);
        assert_int_equal(
            rule(spellings[i], "b.example.org", APPROVAL_OFF, false, &source), RULING_PERSON);
    }
}

static void the_pipeline_goes_from_strict_to_lenient(void **state)
{
    const char *none = "{\"rules\": []}";
    const char *all = "{\"rules\": [" RULE("a.example.com", "allow") ", " RULE(
        "*.example.com", "ask") ", " RULE("*", "deny") "]}";
    const char *two =
        "{\"rules\": [" RULE("a.example.com", "allow") ", " RULE("*.example.com", "ask") "]}";
    const char *one = "{\"rules\": [" RULE("a.example.com", "allow") "]}";
    enum ruling_source source;
    assert_int_equal(rule(all, "a.example.com", APPROVAL_OFF, true, &source), RULING_DENIED);
    assert_int_equal(source, SOURCE_RULE);
    assert_int_equal(
        rule(two, "a.example.com", APPROVAL_MANUAL, true, &source), RULING_ALLOWED);
    assert_int_equal(source, SOURCE_GRANT);
    assert_int_equal(rule(two, "a.example.com", APPROVAL_OFF, false, &source), RULING_PERSON);
    assert_int_equal(
        rule(two, "a.example.com", APPROVAL_GATED, false, &source), RULING_REVIEWER);
    assert_int_equal(
        rule(one, "a.example.com", APPROVAL_MANUAL, false, &source), RULING_ALLOWED);
    assert_int_equal(source, SOURCE_RULE);
    assert_int_equal(
        rule(one, "b.example.com", APPROVAL_MANUAL, false, &source), RULING_PERSON);
    assert_int_equal(source, SOURCE_DEFAULT);
    /* who asks for the network mode `ask` is asked */
    assert_int_equal(rule(none, "b.example.com", APPROVAL_OFF, false, &source), RULING_PERSON);
    assert_int_equal(source, SOURCE_DEFAULT);
    assert_int_equal(
        rule(none, "metadata.google.internal", APPROVAL_OFF, true, &source), RULING_DENIED);
    assert_int_equal(source, SOURCE_HARDLINE);
}

static void some_kinds_have_defaults_of_their_own(void **state)
{
    struct ruling ruling;
    const struct ruling_facts off = {.mode = APPROVAL_OFF};
    const struct ruling_facts manual = {.mode = APPROVAL_MANUAL};
    struct effect exec = make("{\"kind\":\"host_exec\",\"backend\":\"ssh\",\"argv\":[\"ls\"]}");
    struct effect reads =
        make("{\"kind\":\"tool_call\",\"tool\":\"t\",\"arguments\":{},\"read_only\":true}");
    ruling_make(&exec, &off, &ruling);
    assert_int_equal(ruling.kind, RULING_PERSON);
    ruling_make(&reads, &manual, &ruling);
    assert_int_equal(ruling.kind, RULING_ALLOWED);
    effect_done(&exec);
    effect_done(&reads);
}

/* --- approvals */

static struct approvals *open_with(
    const char *path, enum approval_mode mode, uint64_t timeout_ms)
{
    const struct approvals_options options = {
        .path = path, .mode = mode, .timeout_ms = timeout_ms};
    struct approvals *all = NULL;
    struct err err = {0};
    if (approvals_open(&options, &all, &err) < 0)
        fail_msg("%s", err.message);
    return all;
}

static const struct approval_asker asker = {
    .owner = "alice", .session = "ses_1", .is_answerable = true};
static const struct approval_viewer alice = {.name = "alice"};
static const struct approval_viewer mallory = {.name = "mallory"};
static const struct approval_viewer boss = {.name = "boss", .is_operator = true};

static struct approval *ask_for(
    struct approvals *all, const char *host, const struct approval_asker *who)
{
    struct effect effect = connect_to(host, 443);
    struct approval *approval = NULL;
    struct err err = {0};
    if (approvals_ask(all, &effect, who, &approval, &err) < 0)
        fail_msg("%s", err.message);
    effect_done(&effect);
    return approval;
}

/* Tries an effect of about `bytes` bytes that nobody can approve: a row of the log. */
static int try_long(struct approvals *all, const char *owner, size_t bytes, struct err *err)
{
    const struct approval_asker nobody = {.owner = owner};
    char *text = calloc(1, bytes + 1);
    memset(text, 'x', bytes);
    json_t *fields = json_pack("{s:s, s:{s:s}}", "tool", "send", "arguments", "text", text);
    struct effect effect = {0};
    struct approval *approval = NULL;
    assert_int_equal(effect_make(EFFECT_TOOL_CALL, fields, &effect, err), 0);
    int r = approvals_ask(all, &effect, &nobody, &approval, err);
    if (r == 0)
        r = approval_verdict(approval, err);
    approval_drop(approval);
    effect_done(&effect);
    json_decref(fields);
    free(text);
    return r;
}

static void a_key_has_a_share_of_the_log(void **state)
{
    struct approvals *all = open_with(NULL, APPROVAL_MANUAL, 60000);
    struct err err = {0};
    int rows = 0;
    while (rows < 2000 && try_long(all, "alice", 60000, &err) == -EPERM)
        rows++;
    assert_int_equal(err.code, ERR_BUSY);
    assert_true(rows > 500); /* 64 MiB and what an hour gives back meanwhile */
    assert_int_equal(try_long(all, "alice", 60000, &err), -EBUSY);
    assert_int_equal(try_long(all, "bob", 60000, &err), -EPERM); /* the control: another key */
    approvals_close(all);
}

static int decide(struct approvals *all, const char *id, const struct approval_viewer *viewer,
    bool is_approved, enum approval_scope scope, struct err *err)
{
    const struct approval_decision decision = {.is_approved = is_approved, .scope = scope};
    return approvals_decide(all, id, viewer, &decision, err);
}

/* Checks every hash of the log, and returns the number of rows. */
static size_t verify(struct approvals *all)
{
    json_t *list = NULL;
    assert_int_equal(approvals_log(all, &boss, 0, 1000, NULL, &list), 0);
    char prev[LOG_HASH] = "0000000000000000000000000000000000000000000000000000000000000000";
    size_t count = json_array_size(list);
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(list, i);
        struct log_row log = {.seq = (int64_t)json_integer_value(json_object_get(row, "seq")),
            .time_ms = (int64_t)json_integer_value(json_object_get(row, "time_ms")),
            .owner = json_string_value(json_object_get(row, "owner")),
            .place = json_string_value(json_object_get(row, "place")),
            .approval = json_string_value(json_object_get(row, "approval")),
            .event = json_string_value(json_object_get(row, "event")),
            .data = json_string_value(json_object_get(row, "data"))};
        char hash[LOG_HASH];
        memcpy(log.prev_hash, prev, sizeof(prev));
        log_row_hash(&log, hash);
        assert_int_equal(log.seq, i + 1);
        assert_string_equal(json_string_value(json_object_get(row, "prev_hash")), prev);
        assert_string_equal(json_string_value(json_object_get(row, "hash")), hash);
        memcpy(prev, hash, sizeof(prev));
    }
    json_decref(list);
    return count;
}

static void off_asks_and_writes_nothing(void **state)
{
    struct approvals *all = open_with(NULL, APPROVAL_OFF, 1000);
    struct effect mount = make("{\"kind\":\"mount_rw\",\"mount\":\"a\",\"path\":\"/mnt/a\"}");
    struct approval *approval = NULL;
    struct err err = {0};
    assert_int_equal(approvals_ask(all, &mount, &asker, &approval, &err), 0);
    assert_int_equal(approval_verdict(approval, NULL), 0);
    assert_string_equal(approval_id(approval), "");
    assert_int_equal(verify(all), 0);
    approval_drop(approval);
    effect_done(&mount);
    approvals_close(all);
}

static void nobody_reachable_is_a_refusal_at_once(void **state)
{
    struct approvals *all = open_with(NULL, APPROVAL_MANUAL, 1000000);
    struct approval_asker lonely = asker;
    struct err err = {0};
    lonely.is_answerable = false;
    struct approval *approval = ask_for(all, "example.com", &lonely);
    assert_int_equal(approval_wait(approval, -1, &err), -EPERM);
    assert_int_equal(err.code, ERR_APPROVAL_UNAVAILABLE);
    approval_drop(approval);
    struct approval_listener other = {.viewer = mallory};
    assert_int_equal(approvals_listen(all, &other, &err), 0);
    approval = ask_for(all, "example.com", &lonely);
    assert_int_equal(approval_verdict(approval, &err), -EPERM); /* another key's listener */
    approval_drop(approval);
    approvals_unlisten(all, &other);
    struct approval_listener own = {.viewer = alice};
    assert_int_equal(approvals_listen(all, &own, &err), 0);
    approval = ask_for(all, "example.com", &lonely);
    assert_int_equal(approval_verdict(approval, &err), -EAGAIN);
    approval_drop(approval);
    approvals_unlisten(all, &own);
    assert_int_equal(verify(all), 4); /* unavailable twice, asked, lost */
    approvals_close(all);
}

static void the_first_decision_wins(void **state)
{
    struct approvals *all = open_with(NULL, APPROVAL_MANUAL, 1000000);
    struct err err = {0};
    struct approval *approval = ask_for(all, "example.com", &asker);
    const char *id = approval_id(approval);
    assert_true(str_has_prefix(id, "apr_"));
    assert_int_equal(decide(all, id, &mallory, true, SCOPE_ONCE, &err), -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(approval_verdict(approval, &err), -EAGAIN);
    assert_int_equal(decide(all, id, &alice, true, SCOPE_ONCE, &err), 0);
    assert_int_equal(decide(all, id, &alice, true, SCOPE_ONCE, &err), 0);
    assert_int_equal(decide(all, id, &alice, true, SCOPE_ALWAYS, &err), -EALREADY);
    assert_int_equal(decide(all, id, &alice, false, SCOPE_ONCE, &err), -EALREADY);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(approval_wait(approval, -1, &err), 0);
    approval_drop(approval);
    approval = ask_for(all, "example.com", &asker); /* once was once */
    assert_int_equal(approval_verdict(approval, &err), -EAGAIN);
    assert_int_equal(decide(all, approval_id(approval), &alice, false, SCOPE_ONCE, &err), 0);
    assert_int_equal(approval_verdict(approval, &err), -EPERM);
    assert_int_equal(err.code, ERR_DENIED);
    approval_drop(approval);
    assert_int_equal(verify(all), 4);
    approvals_close(all);
}

static void grants_last_as_long_as_they_say(void **state)
{
    struct approvals *all = open_with(NULL, APPROVAL_MANUAL, 1000000);
    struct approval_asker other_session = asker;
    struct approval_asker other_key = asker;
    struct err err = {0};
    other_session.session = "ses_2";
    other_key.owner = "mallory";
    struct approval *approval = ask_for(all, "example.com", &asker);
    assert_int_equal(decide(all, approval_id(approval), &alice, true, SCOPE_SESSION, &err), 0);
    approval_drop(approval);
    approval = ask_for(all, "example.com", &asker);
    assert_int_equal(approval_verdict(approval, &err), 0);
    approval_drop(approval);
    approval = ask_for(all, "example.com", &other_session);
    assert_int_equal(approval_verdict(approval, &err), -EAGAIN);
    assert_int_equal(decide(all, approval_id(approval), &alice, true, SCOPE_ALWAYS, &err), 0);
    approval_drop(approval);
    approval = ask_for(all, "example.com", &other_session);
    assert_int_equal(approval_verdict(approval, &err), 0);
    approval_drop(approval);
    approval = ask_for(all, "example.com", &other_key);
    assert_int_equal(approval_verdict(approval, &err), -EAGAIN);
    approval_drop(approval);
    json_t *grants = NULL;
    assert_int_equal(approvals_grants(all, &alice, NULL, &grants), 0);
    assert_int_equal(json_array_size(grants), 2);
    int64_t id = (int64_t)json_integer_value(json_object_get(json_array_get(grants, 1), "id"));
    json_decref(grants);
    assert_int_equal(approvals_revoke(all, id, &mallory, &err), -ENOENT);
    assert_int_equal(approvals_revoke(all, id, &alice, &err), 0);
    approval = ask_for(all, "example.com", &other_session);
    assert_int_equal(approval_verdict(approval, &err), -EAGAIN);
    approval_drop(approval);
    (void)verify(all);
    approvals_close(all);
}

static void nobody_answers_in_time(void **state)
{
    struct approvals *all = open_with(NULL, APPROVAL_MANUAL, 1);
    struct err err = {0};
    struct approval *approval = ask_for(all, "example.com", &asker);
    assert_int_equal(approval_wait(approval, -1, &err), -EPERM);
    assert_non_null(strstr(err.message, "timeout"));
    assert_int_equal(
        decide(all, approval_id(approval), &alice, true, SCOPE_ONCE, &err), -EALREADY);
    approval_drop(approval);
    approvals_close(all);
}

static void a_model_cannot_answer_for_a_person(void **state)
{
    struct approvals *all = open_with(NULL, APPROVAL_MANUAL, 1000000);
    struct err err = {0};
    json_t *rules = json_loads("{\"rules\": [{\"effect\": \"net_connect\", \"match\": {}, "
                               "\"decision\": \"ask\", \"require_human\": true, " EXAMPLE "}]}",
        0, NULL);
    assert_int_equal(approvals_set_rules(all, rules, &boss, &err), 0);
    json_decref(rules);
    struct approval *approval = ask_for(all, "example.com", &asker);
    const struct approval_decision model = {
        .is_approved = true, .scope = SCOPE_ONCE, .via = "model"};
    assert_int_equal(
        approvals_decide(all, approval_id(approval), &alice, &model, &err), -EPERM);
    assert_int_equal(approval_verdict(approval, &err), -EAGAIN);
    assert_int_equal(decide(all, approval_id(approval), &alice, true, SCOPE_ONCE, &err), 0);
    assert_int_equal(approval_verdict(approval, &err), 0);
    approval_drop(approval);
    approvals_close(all);
}

static void a_restart_loses_what_was_pending(void **state)
{
    char path[] = "/tmp/test-approval-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    struct approvals *all = open_with(path, APPROVAL_MANUAL, 1000000);
    struct err err = {0};
    struct approval *approval = ask_for(all, "example.com", &asker);
    char id[ID_MAX];
    memcpy(id, approval_id(approval), sizeof(id));
    /* The next server opens the file while this one still has it, as after a kill. */
    struct approvals *next = open_with(path, APPROVAL_MANUAL, 1000000);
    json_t *json = NULL;
    assert_int_equal(approvals_get(next, id, &alice, &json, &err), 0);
    assert_string_equal(json_string_value(json_object_get(json, "state")), "lost");
    json_decref(json);
    assert_int_equal(decide(next, id, &alice, true, SCOPE_ONCE, &err), -EALREADY);
    assert_int_equal(verify(next), 2);
    approvals_close(next);
    approval_drop(approval);
    approvals_close(all);
    (void)unlink(path);
    char more[64];
    (void)snprintf(more, sizeof(more), "%s-wal", path);
    (void)unlink(more);
    (void)snprintf(more, sizeof(more), "%s-shm", path);
    (void)unlink(more);
}

/* --- the reviewer */

struct review {
    struct approval_verdict verdict;
    json_t *seen;
    bool is_public; /* the box has nothing private */
};

static void answer(void *context, const json_t *request, struct approval_verdict *ret)
{
    struct review *review = context;
    json_decref(review->seen);
    review->seen = json_deep_copy(request);
    *ret = review->verdict;
}

static int ask_reviewer(struct review *review, enum approval_mode mode, bool is_answerable,
    char *ret_state, struct err *err)
{
    const struct approvals_options options = {
        .mode = mode, .timeout_ms = 1000000, .review = answer, .context = review};
    struct approvals *all = NULL;
    json_t *box =
        json_pack("{s:s, s:[s], s:[]}", "network", "ask", "mounts", "data", "secrets");
    struct approval_asker who = asker;
    if (review->is_public)
        (void)json_array_clear(json_object_get(box, "mounts"));
    assert_int_equal(approvals_open(&options, &all, err), 0);
    who.is_answerable = is_answerable;
    who.box = box;
    struct approval *approval = ask_for(all, "example.com", &who);
    json_decref(box);
    /* Until it is decided, or waits for a person. */
    for (int i = 0; approval_verdict(approval, err) == -EAGAIN; i++) {
        json_t *json = NULL;
        assert_int_equal(approvals_get(all, approval_id(approval), &alice, &json, err), 0);
        bool is_reviewed = json_is_object(json_object_get(json, "reviewer"));
        json_decref(json);
        if (is_reviewed)
            break;
        (void)poll(NULL, 0, 1);
        assert_true(i < 60000);
    }
    int r = approval_verdict(approval, err);
    json_t *json = approval_json(approval);
    (void)snprintf(ret_state, 16, "%s", json_string_value(json_object_get(json, "state")));
    json_decref(json);
    approval_drop(approval);
    (void)verify(all);
    approvals_close(all);
    return r;
}

static void the_reviewer_decides_once(void **state)
{
    struct review review = {
        .verdict = {.decision = VERDICT_APPROVE, .risk = "low", .confidence = 0.9}};
    struct err err = {0};
    char name[16];
    review.is_public = true;
    assert_int_equal(ask_reviewer(&review, APPROVAL_GATED, false, name, &err), 0);
    review.is_public = false; /* all three flags: its approval is not enough */
    assert_int_equal(ask_reviewer(&review, APPROVAL_GATED, true, name, &err), -EAGAIN);
    json_t *flow = json_object_get(review.seen, "flow");
    assert_true(json_is_true(json_object_get(flow, "private_data_read")));
    assert_true(json_is_true(json_object_get(flow, "untrusted_text_read")));
    assert_true(json_is_true(json_object_get(flow, "carries_data_out")));
    assert_string_equal(
        json_string_value(json_object_get(review.seen, "default_risk")), "high");
    review.verdict.decision = VERDICT_DENY;
    assert_int_equal(ask_reviewer(&review, APPROVAL_GATED, true, name, &err), -EPERM);
    assert_int_equal(err.code, ERR_DENIED);
    assert_int_equal(ask_reviewer(&review, APPROVAL_SMART, true, name, &err), -EAGAIN);
    review.verdict.decision = VERDICT_ESCALATE;
    assert_int_equal(ask_reviewer(&review, APPROVAL_GATED, true, name, &err), -EAGAIN);
    assert_int_equal(ask_reviewer(&review, APPROVAL_GATED, false, name, &err), -EPERM);
    assert_int_equal(err.code, ERR_APPROVAL_UNAVAILABLE);
    json_decref(review.seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_canonical_form_is_one_text),
        cmocka_unit_test(grants_bind_what_matters_only),
        cmocka_unit_test(a_host_has_one_spelling),
        cmocka_unit_test(a_key_has_a_share_of_the_log),
        cmocka_unit_test(a_rule_finds_a_host_however_it_is_spelled),
        cmocka_unit_test(wrong_fields_are_refused),
        cmocka_unit_test(patterns_match_what_they_say),
        cmocka_unit_test(rules_are_checked_when_they_are_read),
        cmocka_unit_test(the_pipeline_goes_from_strict_to_lenient),
        cmocka_unit_test(some_kinds_have_defaults_of_their_own),
        cmocka_unit_test(off_asks_and_writes_nothing),
        cmocka_unit_test(nobody_reachable_is_a_refusal_at_once),
        cmocka_unit_test(the_first_decision_wins),
        cmocka_unit_test(grants_last_as_long_as_they_say),
        cmocka_unit_test(nobody_answers_in_time),
        cmocka_unit_test(a_model_cannot_answer_for_a_person),
        cmocka_unit_test(a_restart_loses_what_was_pending),
        cmocka_unit_test(the_reviewer_decides_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
