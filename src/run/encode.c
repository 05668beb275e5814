/* SPDX-License-Identifier: Apache-2.0 */

/* See encode.h. Output is bytes. It is repaired (UTF-8) or encoded (base64) here, once, and
 * nowhere else. */

#include "run/encode.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/utf8.h"
#include "network/entry.h"
#include "network/report.h"
#include "run/diagnostics.h"
#include "run/spawner.h"

#include <math.h>
#include <string.h>
#include <time.h>

json_t *result_text_json(const char *data, size_t len, enum result_encoding encoding)
{
    if (encoding == ENCODE_BASE64) {
        cleanup_free char *text = base64_text(data, len);
        return json_string(text);
    }
    if (utf8_valid(data ? data : "", len))
        return json_stringn_nocheck(data ? data : "", len);
    size_t repaired_len;
    cleanup_free char *repaired = utf8_repair(data, len, &repaired_len);
    return json_stringn_nocheck(repaired, repaired_len);
}

static void write_text(
    struct json_text *t, const char *data, size_t len, enum result_encoding encoding)
{
    if (encoding == ENCODE_BASE64)
        json_text_base64(t, data, len);
    else
        json_text_string(t, data ? data : "", len);
}

/* The clocks are good for three decimals. */
static void write_ms(struct json_text *t, const char *name, double ms)
{
    json_text_add(t, name);
    json_text_real(t, round(ms * 1000) / 1000);
}

void result_write_usage(struct json_text *t, const struct run_usage *u)
{
    write_ms(t, "{\"wall_ms\":", u->wall_ms);
    write_ms(t, ",\"cpu_ms\":", u->cpu_ms);
    json_text_add(t, ",\"memory_peak_kb\":");
    json_text_int(t, (int64_t)u->memory_peak_kb);
    write_ms(t, ",\"queue_ms\":", u->queue_ms);
    write_ms(t, ",\"setup_ms\":", u->setup_ms);
    json_text_add(t, "}");
}

void result_write_hits(struct json_text *t, unsigned hits)
{
    bool is_first = true;
    json_text_add(t, "[");
    for (unsigned i = 0; i < HIT_COUNT; i++) {
        if (!(hits & 1u << i))
            continue;
        json_text_add(t, is_first ? "" : ",");
        json_text_word(t, run_hit_name(i));
        is_first = false;
    }
    json_text_add(t, "]");
}

/* Writes the members that the compile stage and the run share. */
static void write_stage(struct json_text *t, const struct stage_result *s, const char *status,
    const char *message, enum result_encoding encoding)
{
    json_text_add(t, "\"status\":");
    json_text_word(t, status);
    json_text_add(t, ",\"exit_code\":");
    if (s->exited)
        json_text_int(t, s->exit_code);
    else
        json_text_add(t, "null");
    json_text_add(t, ",\"signal\":");
    json_text_word(t, s->signal ? run_signal_name(s->signal) : NULL);
    json_text_add(t, ",\"limits_hit\":");
    result_write_hits(t, s->limits_hit);
    json_text_add(t, ",\"message\":");
    json_text_word(t, message);
    json_text_add(t, ",\"stdout\":");
    write_text(t, s->out.data, s->out.len, encoding);
    json_text_add(t, ",\"stderr\":");
    write_text(t, s->err.data, s->err.len, encoding);
    json_text_add(t, ",\"stdout_truncated\":");
    json_text_bool(t, s->out_truncated);
    json_text_add(t, ",\"stderr_truncated\":");
    json_text_bool(t, s->err_truncated);
}

/* The arguments of the writers below. */
struct telling {
    const struct run_result *result;
    enum result_encoding encoding;
    const struct err *err; /* the failure of Hermes, or NULL */
};

/* A place that the compiler did not name is null. */
static void write_place(struct json_text *t, const char *name, unsigned place)
{
    json_text_add(t, name);
    if (place)
        json_text_int(t, place);
    else
        json_text_add(t, "null");
}

static void write_diagnostics(struct json_text *t, const struct stage_result *c)
{
    struct diagnostic list[DIAGNOSTICS_MAX];
    size_t count = diagnostics_find(list, 0, c->err.data, c->err.len);
    count = diagnostics_find(list, count, c->out.data, c->out.len);
    json_text_add(t, "[");
    for (size_t i = 0; i < count; i++) {
        const struct diagnostic *d = &list[i];
        json_text_add(t, i ? ",{\"file\":" : "{\"file\":");
        json_text_string(t, d->file, d->file_len);
        write_place(t, ",\"line\":", d->line);
        write_place(t, ",\"column\":", d->column);
        json_text_add(t, ",\"severity\":");
        json_text_word(t, diagnostic_severity_name(d->severity));
        json_text_add(t, ",\"text\":");
        json_text_string(t, d->text, d->text_len);
        json_text_add(t, "}");
    }
    json_text_add(t, "]");
}

static void write_compile(struct json_text *t, const void *context)
{
    const struct telling *telling = context;
    const struct run_result *r = telling->result;
    const struct stage_result *c = &r->compile;
    if (!r->has_compile) {
        json_text_add(t, "null");
        return;
    }
    json_text_add(t, "{");
    write_stage(t, c, run_status_name(c->status), c->message, telling->encoding);
    json_text_add(t, ",\"diagnostics\":");
    write_diagnostics(t, c);
    json_text_add(t, ",\"cached\":");
    json_text_bool(t, r->compile_cached);
    json_text_add(t, ",\"seed\":");
    json_text_bool(t, r->compile_seeded);
    json_text_add(t, ",\"usage\":");
    result_write_usage(t, &c->usage);
    json_text_add(t, "}");
}

static void write_file(struct json_text *t, const struct run_file *file)
{
    json_text_add(t, "{\"name\":");
    json_text_word(t, file->name);
    if (file->error) {
        json_text_add(t, ",\"error\":");
        json_text_word(t, file->error);
    } else {
        json_text_add(t, ",\"size\":");
        json_text_int(t, (int64_t)file->size);
        json_text_add(t, ",\"encoding\":\"base64\",\"content\":");
        json_text_base64(t, file->content, file->size);
        json_text_add(t, ",\"executable\":");
        json_text_bool(t, file->executable);
    }
    json_text_add(t, "}");
}

/* Whether every box of the run was started ahead. A cached compilation needs no box. */
static bool is_warm(const struct run_result *r)
{
    bool compiled = r->has_compile && !r->compile_cached;
    bool ran = !r->has_compile || r->compile.status == RUN_OK;
    return (!compiled || r->compile.is_warm) && (!ran || r->run.is_warm);
}

/* Whether the program of the stage began: then the stage was warm, or has a reason for the cold
 * start. */
static bool has_started(const struct stage_result *stage)
{
    return stage->is_warm || stage->cold_reason;
}

static void write_isolation(struct json_text *t, const void *context)
{
    const struct run_result *r = context;
    if (!has_started(&r->run) && !has_started(&r->compile)) {
        json_text_add(
            t, "{\"level\":null,\"cgroup\":null,\"start\":null,\"start_reason\":null}");
        return;
    }
    json_text_add(t, "{\"level\":");
    json_text_word(t, spawner_level_name(r->level));
    json_text_add(t, ",\"cgroup\":");
    json_text_word(t, spawner_cgroup_name(r->cgroup));
    json_text_add(t, is_warm(r) ? ",\"start\":\"warm\"" : ",\"start\":\"cold\"");
    const char *reason = r->run.cold_reason ? r->run.cold_reason : r->compile.cold_reason;
    json_text_add(t, ",\"start_reason\":");
    if (reason)
        json_text_word(t, reason);
    else
        json_text_add(t, "null");
    json_text_add(t, "}");
}

static void write_error(struct json_text *t, const struct err *err)
{
    json_text_add(t, ",\"error\":{\"code\":");
    json_text_word(t, err_table[err->code].name);
    json_text_add(t, ",\"message\":");
    json_text_word(t, err->message);
    json_text_add(t, "}");
}

static void write_result(struct json_text *t, const void *context)
{
    const struct telling *telling = context;
    const struct run_result *r = telling->result;
    const struct stage_result *s = &r->run;
    const struct err *err = telling->err;
    json_text_add(t, "{\"id\":");
    json_text_word(t, r->id);
    json_text_add(t, ",");
    write_stage(t, s, run_status_name(err ? RUN_INTERNAL_ERROR : s->status),
        err ? err->message : s->message, telling->encoding);
    json_text_add(t, ",\"compile\":");
    write_compile(t, context);
    json_text_add(t, ",\"usage\":");
    result_write_usage(t, &s->usage);
    json_text_add(t, ",\"files\":[");
    for (size_t i = 0; i < r->files.count; i++) {
        json_text_add(t, i ? "," : "");
        write_file(t, &r->files.items[i]);
    }
    json_text_add(t, "],\"isolation\":");
    write_isolation(t, r);
    json_text_add(t, ",\"network\":");
    network_report_write(t, s->network);
    if (r->approvals) {
        json_text_add(t, ",\"approvals\":");
        json_text_add(t, r->approvals);
    }
    if (err)
        write_error(t, err);
    json_text_add(t, "}");
}

struct answer *result_answer(const struct run_result *result, enum result_encoding encoding,
    const struct err *err, struct ledger *ledger, int owner, struct purse *held)
{
    const struct telling telling = {
        .result = result, .encoding = err ? ENCODE_UTF8 : encoding, .err = err};
    return json_text_answer(ledger, owner, held, write_result, &telling);
}

json_t *result_json(const struct run_result *result, enum result_encoding encoding)
{
    const struct telling telling = {.result = result, .encoding = encoding};
    return json_text_load(write_result, &telling);
}

json_t *result_json_error(const struct run_result *result, const struct err *err)
{
    const struct telling telling = {.result = result, .encoding = ENCODE_UTF8, .err = err};
    json_t *json = json_text_load(write_result, &telling);
    (void)json_object_del(json, "error");
    return json;
}

json_t *result_compile_json(const struct run_result *result, enum result_encoding encoding)
{
    const struct telling telling = {.result = result, .encoding = encoding};
    return json_text_load(write_compile, &telling);
}

json_t *result_isolation_json(const struct run_result *result)
{
    return json_text_load(write_isolation, result);
}

static void write_usage_of(struct json_text *t, const void *usage)
{
    result_write_usage(t, usage);
}

json_t *result_usage_json(const struct run_usage *usage)
{
    return json_text_load(write_usage_of, usage);
}

json_t *result_hits_json(unsigned hits)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < HIT_COUNT; i++) {
        if (hits & 1u << i)
            (void)json_array_append_new(list, json_string(run_hit_name(i)));
    }
    return list;
}

static json_t *network_json(const struct spawn_reply *reply)
{
    const char *missing;
    unsigned enforced = spawner_network_modes(reply, &missing);
    json_t *modes = json_array();
    for (unsigned mode = 0; mode < NETWORK_MODE_COUNT; mode++) {
        if (enforced & 1u << mode)
            (void)json_array_append_new(modes, json_string(network_mode_name(mode)));
    }
    return json_pack("{s:o, s:s?}", "modes", modes, "reason", missing[0] ? missing : NULL);
}

json_t *result_report_json(const struct spawn_reply *reply)
{
    json_t *features = json_array();
    for (unsigned i = 0; i < FEATURE_COUNT; i++) {
        bool on = reply->enforced & 1u << i;
        (void)json_array_append_new(
            features, json_pack("{s:s, s:b, s:s, s:s?, s:s?}", "name", feature_table[i].name,
                          "enforced", on, "text", feature_table[i].text, "reason",
                          on ? NULL : strerror(-reply->reason[i]), "fix",
                          on ? NULL : feature_table[i].fix));
    }
    return json_pack("{s:s, s:s, s:i, s:o, s:o}", "level", spawner_level_name(reply->level),
        "cgroup", spawner_cgroup_name(reply->cgroup), "landlock_abi", (int)reply->landlock_abi,
        "features", features, "network", network_json(reply));
}

json_t *result_time_json(int64_t seconds)
{
    char text[32];
    struct tm tm;
    time_t when = (time_t)seconds;
    (void)gmtime_r(&when, &tm);
    (void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_string(text);
}
