/* SPDX-License-Identifier: Apache-2.0 */

/* See encode.h. The signature covers the answer in a canonical form. So an answer that was
 * stored with other spaces or another order of keys can still be verified. */

#include "judge/encode.h"

#include "base/alloc.h"
#include "base/str.h"
#include "network/report.h"

#include <errno.h>
#include <math.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints 3, not 3.0. */
static json_t *points_json(double points)
{
    double rounded = round(points * 1e6) / 1e6;
    return rounded == floor(rounded) ? json_integer((json_int_t)rounded) : json_real(rounded);
}

static json_t *message_json(const char *message)
{
    return result_text_json(message, strlen(message), ENCODE_UTF8);
}

static json_t *talk_json(const struct judge_test_result *test, enum result_encoding encoding)
{
    json_t *list = json_array();
    for (size_t i = 0; i < test->talk_count; i++) {
        const struct judge_talk *talk = &test->talk[i];
        (void)json_array_append_new(list,
            json_pack("{s:s, s:o}", "from", talk->from_solution ? "solution" : "interactor",
                "data", result_text_json(talk->data, talk->len, encoding)));
    }
    return list;
}

json_t *judge_json_test(const struct judge_spec *spec, size_t index,
    const struct judge_test_result *test, enum result_encoding encoding)
{
    const struct judge_test *asked = &spec->tests[index];
    const struct stage_result *run = &test->run.run;
    json_t *json = json_pack(
        "{s:s, s:o, s:s, s:o, s:o, s:o, s:s?, s:o, s:o, s:o, s:o, s:b, s:b, s:o, s:i}", "name",
        asked->name, "group",
        asked->group >= 0 ? json_string(spec->groups[asked->group].name) : json_null(),
        "verdict", judge_verdict_name(test->verdict), "points", points_json(test->points),
        "max_points", points_json(asked->points), "exit_code",
        test->ran && run->exited ? json_integer(run->exit_code) : json_null(), "signal",
        test->ran && run->signal ? run_signal_name(run->signal) : NULL, "limits_hit",
        result_hits_json(run->limits_hit), "message", message_json(test->message), "stdout",
        result_text_json(run->out.data, run->out.len, encoding), "stderr",
        result_text_json(run->err.data, run->err.len, encoding), "stdout_truncated",
        run->out_truncated, "stderr_truncated", run->err_truncated, "usage",
        test->ran ? result_usage_json(&run->usage) : json_null(), "attempts",
        (int)test->attempts);
    (void)json_object_set_new(json, "network", network_report_json(run->network));
    if (spec->checker.network)
        (void)json_object_set_new(
            json, "checker_network", network_report_json(test->checker_network));
    if (spec->interactor.network)
        (void)json_object_set_new(
            json, "interactor_network", network_report_json(test->interactor_network));
    if (spec->transcript) {
        (void)json_object_set_new(json, "transcript", talk_json(test, encoding));
        (void)json_object_set_new(
            json, "transcript_truncated", json_boolean(test->talk_truncated));
    }
    return json;
}

static json_t *groups_json(const struct judge_spec *spec, const struct judge_result *result)
{
    json_t *list = json_array();
    for (size_t i = 0; result->groups && i < spec->group_count; i++) {
        const struct judge_group_result *group = &result->groups[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:o, s:o}", "name", spec->groups[i].name, "verdict",
                      judge_verdict_name(group->verdict), "points", points_json(group->points),
                      "max_points", points_json(group->max_points)));
    }
    return list;
}

/* The isolation of a judgement is that of its first test that had a box, else that of the
 * compiler. */
static const struct run_result *first_box(const struct judge_result *result)
{
    for (size_t i = 0; i < result->test_count; i++) {
        if (result->tests[i].ran)
            return &result->tests[i].run;
    }
    return &result->compile;
}

json_t *judge_json(const struct judge_spec *spec, const struct judge_result *result,
    enum result_encoding encoding)
{
    json_t *tests = json_array();
    for (size_t i = 0; i < result->test_count; i++)
        (void)json_array_append_new(
            tests, judge_json_test(spec, i, &result->tests[i], encoding));
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id", result->id,
        "status", run_status_name(result->cancelled ? RUN_CANCELLED : RUN_OK), "verdict",
        judge_verdict_name(result->verdict), "points", points_json(result->points),
        "max_points", points_json(result->max_points), "message", message_json(result->message),
        "compile", result_compile_json(&result->compile, encoding), "tests", tests, "groups",
        groups_json(spec, result), "isolation", result_isolation_json(first_box(result)));
}

void judge_hash(const void *data, size_t len, char ret[JUDGE_HASH_HEX])
{
    struct sha256_ctx ctx;
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_init(&ctx);
    sha256_update(&ctx, len, data);
    sha256_digest(&ctx, sizeof(digest), digest);
    str_hex(digest, SHA256_DIGEST_SIZE, ret);
}

/* Computes the signature of this answer. */
static void make_signature(const json_t *answer, const char *key, char ret[JUDGE_HASH_HEX])
{
    json_t *copy = json_deep_copy(answer);
    struct hmac_sha256_ctx ctx;
    uint8_t digest[SHA256_DIGEST_SIZE];
    (void)json_object_del(json_object_get(copy, "signature"), "value");
    (void)json_object_del(
        copy, "t"); /* the time of the event `end`, if the answer came by one */
    /* Converts to text and back, because a newly made number has more digits than a number
     * that was read. */
    char *text = json_dumps(copy, JSON_COMPACT | RESULT_JSON_FLAGS);
    json_decref(copy);
    copy = text ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;
    free(text);
    text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS | RESULT_JSON_FLAGS);
    json_decref(copy);
    hmac_sha256_set_key(&ctx, strlen(key), (const uint8_t *)key);
    hmac_sha256_update(&ctx, text ? strlen(text) : 0, (const uint8_t *)(text ? text : ""));
    hmac_sha256_digest(&ctx, sizeof(digest), digest);
    free(text);
    str_hex(digest, SHA256_DIGEST_SIZE, ret);
}

void judge_json_sign(json_t *answer, const char *request_hash, const char *key)
{
    char value[JUDGE_HASH_HEX];
    json_t *signature =
        json_pack("{s:s, s:s}", "algorithm", "hmac-sha256", "request_sha256", request_hash);
    (void)json_object_set_new(answer, "signature", signature);
    make_signature(answer, key, value);
    (void)json_object_set_new(signature, "value", json_string(value));
}

int judge_json_verify(const json_t *answer, const char *key)
{
    char expected[JUDGE_HASH_HEX];
    const json_t *value = json_object_get(json_object_get(answer, "signature"), "value");
    if (!json_is_string(value))
        return -ENOENT;
    make_signature(answer, key, expected);
    bool fits = json_string_length(value) == JUDGE_HASH_HEX - 1 &&
                memeql_sec(json_string_value(value), expected, JUDGE_HASH_HEX - 1);
    return fits ? 0 : -EBADMSG;
}
