/* SPDX-License-Identifier: Apache-2.0 */

/* What goes to the reviewer, and how its answer is read. tests/approval/test_gate.py has the
 * same with a real endpoint. */

#include "approval/gate.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct gate_settings settings = {
    .model = "m", .max_context_chars = 12000, .min_confidence = 0.75, .max_risk = "medium"};

static void redacted_text(const char *from, const char *want)
{
    json_t *text = json_string(from);
    json_t *got = gate_redact(text, true);
    assert_string_equal(json_string_value(got), want);
    json_decref(text);
    json_decref(got);
}

static void secrets_in_texts_are_redacted(void **state)
{
    redacted_text("MY_API_KEY=abc123 next", "MY_API_KEY=[REDACTED] next");
    redacted_text("password: 'a b c', x", "password: [REDACTED], x");
    redacted_text("Authorization: Bearer abcdefgh", "Authorization: [REDACTED]");
    redacted_text("say bearer abcdefghijk now", "say [REDACTED] now");
    redacted_text("bearer short", "bearer short");
    redacted_text("sk-abcdefgh1", "[REDACTED]");
    redacted_text("task-abcdefgh1", "task-abcdefgh1");
    redacted_text("{\"token\": \"x\\\"y\", \"a\": 1}", "{\"token\": [REDACTED], \"a\": 1}");
    redacted_text("the token is not here", "the token is not here");
    redacted_text("plain text", "plain text");
}

static void secret_members_are_redacted(void **state)
{
    json_t *object = json_loads("{\"apiKey\": {\"a\": 1}, \"Set-Cookie\": \"x\", \"n\": 1,"
                                " \"list\": [{\"db_password\": 1}]}",
        0, NULL);
    json_t *got = gate_redact(object, false);
    cleanup_free char *text = json_dumps(got, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"Set-Cookie\":\"[REDACTED]\",\"apiKey\":\"[REDACTED]\","
                              "\"list\":[{\"db_password\":\"[REDACTED]\"}],\"n\":1}");
    json_decref(object);
    json_decref(got);
}

static void long_things_are_cut(void **state)
{
    json_t *object = json_object();
    json_t *list = json_array();
    json_t *deep = json_string("bottom");
    char name[200];
    for (int i = 0; i < 50; i++) {
        (void)snprintf(name, sizeof(name), "%0150d", i);
        (void)json_object_set_new(object, name, json_integer(i));
        (void)json_array_append_new(list, json_integer(i));
    }
    for (int i = 0; i < 8; i++)
        deep = json_pack("[o]", deep);
    json_t *got = gate_redact(object, true);
    assert_int_equal(json_object_size(got), 2); /* names are cut to 120 bytes, all zeros */
    assert_true(json_is_true(json_object_get(got, "[TRUNCATED]")));
    json_decref(got);
    got = gate_redact(list, true);
    assert_int_equal(json_array_size(got), 40);
    json_decref(got);
    got = gate_redact(deep, true);
    cleanup_free char *text = json_dumps(got, JSON_COMPACT);
    assert_string_equal(text, "[[[[[[\"[TRUNCATED]\"]]]]]]");
    json_decref(got);
    cleanup_free char *longer = xmalloc(9001);
    memset(longer, 'x', 9000);
    longer[9000] = '\0';
    json_t *string = json_string(longer);
    got = gate_redact(string, true);
    assert_int_equal(json_string_length(got), 4000);
    json_decref(got);
    got = gate_redact(string, false);
    assert_int_equal(json_string_length(got), 9000);
    json_decref(got);
    json_decref(string);
    json_decref(object);
    json_decref(list);
    json_decref(deep);
}

static json_t *request_of(size_t effect_size, size_t code_size)
{
    cleanup_free char *big = xmalloc(effect_size + 1);
    cleanup_free char *code = xmalloc(code_size + 1);
    memset(big, 'e', effect_size);
    memset(code, 'c', code_size);
    big[effect_size] = code[code_size] = '\0';
    return json_pack("{s:{s:s, s:s}, s:s, s:s}", "effect", "kind", "mount_rw", "path", big,
        "why_asked", "password=hunter2", "untrusted_code", code);
}

/* The context goes first; the effect is never shortened. */
static void what_is_too_long_goes_to_a_person(void **state)
{
    struct gate_settings narrow = settings;
    struct approval_verdict verdict = {0};
    narrow.max_context_chars = 1;
    json_t *request = request_of(100, 300);
    cleanup_free char *whole = NULL;
    gate_body(&narrow, request, &whole, &verdict); /* 1000 at least */
    assert_non_null(whole);
    assert_non_null(strstr(whole, "cccc"));
    assert_null(strstr(whole, "hunter2"));
    json_decref(request);
    request = request_of(100, 3000);
    cleanup_free char *cut = NULL;
    gate_body(&narrow, request, &cut, &verdict);
    assert_non_null(cut);
    assert_null(strstr(cut, "cccc"));
    assert_non_null(strstr(cut, "truncated"));
    json_decref(request);
    request = request_of(60000, 1);
    char *none = NULL;
    narrow.max_context_chars = 10000000; /* 50000 at most */
    gate_body(&narrow, request, &none, &verdict);
    assert_null(none);
    assert_int_equal(verdict.decision, VERDICT_ESCALATE);
    json_decref(request);
}

static void reasons_are_trimmed(void **state)
{
    cleanup_free char *text = xasprintf("{\"decision\":\"deny\",\"scope\":\"once\",\"risk\":"
                                        "\"low\",\"confidence\":0,\"reason\":\"  %0600d\"}",
        0);
    struct approval_verdict verdict = {0};
    gate_judge(&settings, text, strlen(text), &verdict);
    assert_int_equal(verdict.decision, VERDICT_DENY);
    assert_int_equal(strlen(verdict.reason), 500);
}

/* Each answer has the fault of its row and those of all rows below it. */
static void the_first_fault_counts(void **state)
{
    static const struct {
        const char *answer, *word;
    } rows[] = {
        {"{\"decision\":1,\"scope\":1,\"risk\":1,\"confidence\":\"x\",\"reason\":\" \"",
            "not JSON"},
        {"{\"decision\":1,\"scope\":1,\"risk\":1,\"confidence\":\"x\"}", "five keys"},
        {"{\"decision\":1,\"scope\":1,\"risk\":1,\"confidence\":\"x\",\"reason\":\" \"}",
            "decision"},
        {"{\"decision\":\"deny\",\"scope\":1,\"risk\":1,\"confidence\":\"x\",\"reason\":\" \"}",
            "no reason"},
        {"{\"decision\":\"deny\",\"scope\":1,\"risk\":1,\"confidence\":\"x\",\"reason\":\"r\"}",
            "not a number"},
        {"{\"decision\":\"deny\",\"scope\":1,\"risk\":1,\"confidence\":2,\"reason\":\"r\"}",
            "out of range"},
        {"{\"decision\":\"deny\",\"scope\":1,\"risk\":1,\"confidence\":1,\"reason\":\"r\"}",
            "scope"},
        {"{\"decision\":\"deny\",\"scope\":\"once\",\"risk\":1,\"confidence\":1,"
         "\"reason\":\"r\"}",
            "risk"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct approval_verdict verdict = {0};
        gate_judge(&settings, rows[i].answer, strlen(rows[i].answer), &verdict);
        assert_int_equal(verdict.decision, VERDICT_ESCALATE);
        assert_non_null(strstr(verdict.reason, rows[i].word));
    }
}

/* The person sees what the reviewer did say: its risk and confidence, or unknown and 0. */
static void an_escalation_keeps_what_was_said(void **state)
{
    static const char wide[] =
        "{\"decision\":\"approve\",\"scope\":\"always\",\"risk\":\"high\","
        "\"confidence\":0.5,\"reason\":\"r\"}";
    static const char odd[] = "{\"decision\":\"approve\",\"scope\":\"once\",\"risk\":\"odd\","
                              "\"confidence\":7,\"reason\":\"r\"}";
    struct approval_verdict verdict = {0};
    gate_judge(&settings, wide, strlen(wide), &verdict);
    assert_string_equal(verdict.risk, "high");
    assert_true(verdict.confidence == 0.5);
    gate_judge(&settings, odd, strlen(odd), &verdict);
    assert_string_equal(verdict.risk, "unknown");
    assert_true(verdict.confidence == 0);
}

static void settings_without_sense_raise_nothing(void **state)
{
    static const char *const risks[] = {"high", "critical", "banana", ""};
    static const double floors[] = {0, -1, NAN};
    static const struct {
        const char *risk;
        double confidence;
        int want;
    } rows[] = {{"medium", 0.75, VERDICT_APPROVE}, {"medium", 0.7499, VERDICT_ESCALATE},
        {"high", 1, VERDICT_ESCALATE}, {"critical", 1, VERDICT_ESCALATE}};
    for (size_t i = 0; i < 12 * sizeof(rows) / sizeof(rows[0]); i++) {
        struct gate_settings weak = settings;
        weak.max_risk = risks[i % 4];
        weak.min_confidence = floors[i / 4 % 3];
        struct approval_verdict verdict = {0};
        cleanup_free char *text =
            xasprintf("{\"decision\":\"approve\",\"scope\":\"once\",\"risk\":\"%s\","
                      "\"confidence\":%f,\"reason\":\"r\"}",
                rows[i / 12].risk, rows[i / 12].confidence);
        gate_judge(&weak, text, strlen(text), &verdict);
        assert_int_equal(verdict.decision, rows[i / 12].want);
    }
}

/* What the code of a preview can make long goes first, and takes nothing with it. */
static void a_long_preview_goes_alone(void **state)
{
    struct gate_settings narrow = settings;
    struct approval_verdict verdict = {0};
    narrow.max_context_chars = 1;
    cleanup_free char *flood = xmalloc(3001);
    memset(flood, 'p', 3000);
    flood[3000] = '\0';
    json_t *request = request_of(100, 300);
    (void)json_object_set_new(request, "preview", json_pack("{s:s}", "stdout", flood));
    cleanup_free char *body = NULL;
    gate_body(&narrow, request, &body, &verdict);
    json_decref(request);
    assert_non_null(body);
    assert_null(strstr(body, "pppp"));
    assert_non_null(strstr(body, "truncated"));
    assert_non_null(strstr(body, "cccc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_in_texts_are_redacted),
        cmocka_unit_test(secret_members_are_redacted),
        cmocka_unit_test(long_things_are_cut),
        cmocka_unit_test(what_is_too_long_goes_to_a_person),
        cmocka_unit_test(reasons_are_trimmed),
        cmocka_unit_test(the_first_fault_counts),
        cmocka_unit_test(an_escalation_keeps_what_was_said),
        cmocka_unit_test(settings_without_sense_raise_nothing),
        cmocka_unit_test(a_long_preview_goes_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
