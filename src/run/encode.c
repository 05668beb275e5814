/* SPDX-License-Identifier: Apache-2.0 */

/* See result.h. Output is bytes: it is repaired or encoded here, once, and nowhere else. */

#include "run/encode.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/utf8.h"
#include "run/spawner.h"

#include <math.h>
#include <string.h>

char *result_base64(const void *data, size_t len)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = data;
    char *out = xmalloc((len + 2) / 3 * 4 + 1);
    char *to = out;
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        unsigned word = (unsigned)in[i] << 16 | (left > 1 ? (unsigned)in[i + 1] << 8 : 0) |
                        (left > 2 ? in[i + 2] : 0u);
        *to++ = digits[word >> 18];
        *to++ = digits[word >> 12 & 63];
        *to++ = left > 1 ? digits[word >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[word & 63] : '=';
    }
    *to = '\0';
    return out;
}

json_t *result_text_json(const char *data, size_t len, enum result_encoding encoding)
{
    if (encoding == ENCODE_BASE64) {
        cleanup_free char *text = result_base64(data, len);
        return json_string(text);
    }
    if (utf8_valid(data ? data : "", len))
        return json_stringn_nocheck(data ? data : "", len);
    size_t repaired_len;
    cleanup_free char *repaired = utf8_repair(data, len, &repaired_len);
    return json_stringn_nocheck(repaired, repaired_len);
}

/* Three decimals are what the clocks are good for; writers use RESULT_JSON_FLAGS. */
static json_t *ms_json(double ms)
{
    return json_real(round(ms * 1000) / 1000);
}

json_t *result_usage_json(const struct run_usage *u)
{
    return json_pack("{s:o, s:o, s:I, s:o, s:o}", "wall_ms", ms_json(u->wall_ms), "cpu_ms",
        ms_json(u->cpu_ms), "memory_peak_kb", (json_int_t)u->memory_peak_kb, "queue_ms",
        ms_json(u->queue_ms), "setup_ms", ms_json(u->setup_ms));
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

json_t *result_compile_json(const struct run_result *r, enum result_encoding encoding)
{
    const struct stage_result *c = &r->compile;
    if (!r->has_compile)
        return json_null();
    return json_pack("{s:s, s:o, s:s?, s:o, s:s, s:o, s:o, s:b, s:b, s:b, s:o}", "status",
        run_status_name(c->status), "exit_code",
        c->exited ? json_integer(c->exit_code) : json_null(), "signal",
        c->signal ? run_signal_name(c->signal) : NULL, "limits_hit",
        result_hits_json(c->limits_hit), "message", c->message, "stdout",
        result_text_json(c->out.data, c->out.len, encoding), "stderr",
        result_text_json(c->err.data, c->err.len, encoding), "stdout_truncated",
        c->out_truncated, "stderr_truncated", c->err_truncated, "cached", r->compile_cached,
        "usage", result_usage_json(&c->usage));
}

static json_t *file_json(const struct run_file *file)
{
    if (file->error)
        return json_pack("{s:s, s:s}", "name", file->name, "error", file->error);
    cleanup_free char *content = result_base64(file->content, file->size);
    return json_pack("{s:s, s:I, s:s, s:s, s:b}", "name", file->name, "size",
        (json_int_t)file->size, "encoding", "base64", "content", content, "executable",
        file->executable);
}

static json_t *files_json(const struct run_files *files)
{
    json_t *list = json_array();
    for (size_t i = 0; i < files->count; i++)
        (void)json_array_append_new(list, file_json(&files->items[i]));
    return list;
}

/* Whether every box of the run was there before it; a compilation that was kept had none. */
static bool is_warm(const struct run_result *r)
{
    bool compiled = r->has_compile && !r->compile_cached;
    bool ran = !r->has_compile || r->compile.status == RUN_OK;
    return (!compiled || r->compile.is_warm) && (!ran || r->run.is_warm);
}

json_t *result_isolation_json(const struct run_result *r)
{
    return json_pack("{s:s, s:s, s:s}", "level", spawner_level_name(r->level), "cgroup",
        spawner_cgroup_name(r->cgroup), "start", is_warm(r) ? "warm" : "cold");
}

json_t *result_json(const struct run_result *r, enum result_encoding encoding)
{
    const struct stage_result *s = &r->run;
    return json_pack("{s:s, s:s, s:o, s:s?, s:o, s:s, s:o, s:o, s:b, s:b, s:o, s:o, s:o, s:o}",
        "id", r->id, "status", run_status_name(s->status), "exit_code",
        s->exited ? json_integer(s->exit_code) : json_null(), "signal",
        s->signal ? run_signal_name(s->signal) : NULL, "limits_hit",
        result_hits_json(s->limits_hit), "message", s->message, "stdout",
        result_text_json(s->out.data, s->out.len, encoding), "stderr",
        result_text_json(s->err.data, s->err.len, encoding), "stdout_truncated",
        s->out_truncated, "stderr_truncated", s->err_truncated, "compile",
        result_compile_json(r, encoding), "usage", result_usage_json(&s->usage), "files",
        files_json(&r->files), "isolation", result_isolation_json(r));
}

json_t *result_json_error(const struct run_result *r, const struct err *err)
{
    json_t *json = result_json(r, ENCODE_UTF8);
    (void)json_object_set_new(json, "status", json_string(run_status_name(RUN_INTERNAL_ERROR)));
    (void)json_object_set_new(json, "message", json_string(err->message));
    return json;
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
    return json_pack("{s:s, s:s, s:i, s:o}", "level", spawner_level_name(reply->level),
        "cgroup", spawner_cgroup_name(reply->cgroup), "landlock_abi", (int)reply->landlock_abi,
        "features", features);
}
