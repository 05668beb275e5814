/* SPDX-License-Identifier: Apache-2.0 */

/* /execute and /v2/execute, for clients of the Hermes REST engine (docs/compat-rest.md). The
 * body is checked as that engine does, converted to a body of /v1/runs and run like any other
 * run. Errors that the engine reports in its answer (unknown language, bad limit, compile
 * failure) have status 200 here too; its refusals are plain text. */

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"
#include "http/call.h"
#include "http/routes.h"
#include "run/decode.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In bytes: how much of a bad language name is repeated, and what a log gets beside stderr. */
enum { LANGUAGE_SHOWN = 128, LOG_EXTRA = 4096, STATUS_UNPROCESSABLE = 422 };

static const char plain_text[] = "text/plain; charset=utf-8";

/* The two routes differ in their fields and in the members of their answers. */
enum form { FORM_CODE, FORM_FILES };

/* Default time limits of the engine. All other defaults are the runtime's. */
static const struct {
    const char *language;
    uint64_t wall_ms, cpu_ms;
} default_times[] = {
    {"python", 2000, 2000},
    {"javascript", 3000, 2000},
    {"java", 5000, 5000},
    {"cpp", 5000, 4000},
};

/* Fields of `limits`. The engine's documentation says `process_limit`, its code expects
 * `processes_limit`; both work here. */
#define ROW(field, says, member, most, unit)                                                   \
    {                                                                                          \
        field, says, offsetof(struct run_limits, member), most, unit                           \
    }
static const struct limit_field {
    const char *name;
    const char *word; /* name in error messages */
    size_t offset;
    uint64_t max;   /* in the field's unit */
    uint64_t scale; /* units of the member per unit of the field */
} limit_fields[] = {
    ROW("time_limit", "time", wall_ms, 20, 1000),
    ROW("cpu_time_limit", "cpu time", cpu_ms, 20, 1000),
    ROW("memory_limit", "memory", memory_mb, 1000, 1),
    ROW("stack_limit", "stack", stack_mb, 250, 1),
    ROW("process_limit", "processes", processes, 128, 1),
    ROW("processes_limit", "processes", processes, 128, 1),
    ROW("open_files_limit", "open files", open_files, 128, 1),
    ROW("file_size_limit", "file size", file_size_mb, 10, 1),
};
enum { LIMIT_FIELDS = sizeof(limit_fields) / sizeof(limit_fields[0]) };

/* One request in progress. */
struct call {
    struct http_request *req;
    struct http_reply *reply;
    enum form form;
    json_t *body; /* owned; NULL once it is decoded */
    struct json_run run;
    struct err *err;
};

struct text {
    const char *data;
    size_t len;
};

static struct text text_of(const char *words)
{
    return (struct text){.data = words, .len = strlen(words)};
}

/* An answer with the engine's members. */
struct telling {
    enum form form;
    int code;
    struct text output, log;
    uint64_t ms;
    const struct err *err; /* also reported in the form of /v1 routes; or NULL */
};

static void write_text(struct json_text *t, const char *name, const struct text *text)
{
    json_text_add(t, name);
    json_text_string(t, text->data ? text->data : "", text->len);
}

static void write_int(struct json_text *t, const char *name, int64_t number)
{
    json_text_add(t, name);
    json_text_int(t, number);
}

static void write_telling(struct json_text *t, const void *context)
{
    const struct telling *telling = context;
    if (telling->form == FORM_FILES) {
        write_text(t, "{\"stdout\":", &telling->output);
        write_text(t, ",\"stderr\":", &telling->log);
        write_int(t, ",\"exit_code\":", telling->code);
    }
    write_int(t, telling->form == FORM_FILES ? ",\"code\":" : "{\"code\":", telling->code);
    write_text(t, ",\"output\":", &telling->output);
    write_text(t, ",\"std_log\":", &telling->log);
    write_int(t, ",\"time_ms\":", (int64_t)telling->ms);
    if (telling->err) {
        const struct text message = text_of(telling->err->message);
        json_text_add(t, ",\"error\":{\"code\":");
        json_text_word(t, err_table[telling->err->code].name);
        write_text(t, ",\"message\":", &message);
        json_text_add(t, "}");
    }
    json_text_add(t, "}");
}

static int tell(struct call *c, const struct telling *telling)
{
    struct answer *answer =
        json_text_answer(c->req->state->ledger, c->req->owner, NULL, write_telling, telling);
    if (!answer)
        return state_full(c->err);
    reply_answer(c->reply, 200, answer);
    return 0;
}

/* Answers with the engine's members when no program ran. */
static int say(struct call *c, const char *output, const char *log)
{
    return tell(
        c, &(struct telling){
               .form = c->form, .code = 1, .output = text_of(output), .log = text_of(log)});
}

static void refuse(enum form form, struct http_reply *reply, const struct err *err)
{
    reply_error(reply, err);
    if (err->code == ERR_UNAUTHORIZED) {
        /* Reported three times: as HTTP status, in the engine's members, and as /v1 routes do.
         */
        cleanup_free char *log = xasprintf("Auth Error: %s", err->message);
        const struct telling telling = {
            .form = form, .code = reply->status, .log = text_of(log), .err = err};
        struct answer *answer = json_text_answer(NULL, -1, NULL, write_telling, &telling);
        if (answer)
            reply_answer(reply, reply->status, answer);
    } else if (err->code == ERR_MEDIA_TYPE && form == FORM_FILES) {
        reply_text(reply, err_table[ERR_INVALID].http_status, plain_text, err->message);
    } else if (err->code == ERR_INVALID || err->code == ERR_TOO_LARGE ||
               err->code == ERR_MEDIA_TYPE) {
        reply_text(reply, reply->status, plain_text, err->message);
    }
}

void refuse_execute(struct http_reply *reply, const struct err *err)
{
    refuse(FORM_CODE, reply, err);
}

void refuse_execute_files(struct http_reply *reply, const struct err *err)
{
    refuse(FORM_FILES, reply, err);
}

static int check_string(
    const json_t *object, const char *prefix, const char *name, struct err *err)
{
    const json_t *value = json_object_get(object, name);
    char field[96];
    (void)snprintf(field, sizeof(field), "%s%s", prefix, name);
    if (!value)
        return err_field(err, field, "missing field `%s`", field);
    if (!json_is_string(value))
        return err_field(err, field, "`%s` must be a string", field);
    return 0;
}

/* Absent and null mean the same, as in the engine. Unknown fields are ignored. */
static int check_limits_types(const json_t *body, struct err *err)
{
    const json_t *limits = json_object_get(body, "limits");
    if (!limits || json_is_null(limits))
        return 0;
    if (!json_is_object(limits))
        return err_field(err, "limits", "`limits` must be an object of whole numbers");
    for (size_t i = 0; i < LIMIT_FIELDS; i++) {
        const json_t *value = json_object_get(limits, limit_fields[i].name);
        int64_t number;
        if (value && !json_whole(value, &number) && !json_is_null(value))
            return err_field(err, limit_fields[i].name, "`limits.%s` must be a whole number",
                limit_fields[i].name);
    }
    return 0;
}

static int check_files_types(const json_t *body, struct err *err)
{
    const json_t *files = json_object_get(body, "files");
    int r = 0;
    if (!json_is_array(files))
        return err_field(err, "files", "%s",
            files ? "`files` must be a list of objects" : "missing field `files`");
    for (size_t i = 0; r == 0 && i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i);
        char prefix[48];
        (void)snprintf(prefix, sizeof(prefix), "files[%zu].", i);
        if (!json_is_object(file))
            return err_field(err, "files", "`files[%zu]` must be an object", i);
        r = check_string(file, prefix, "name", err);
        if (r == 0)
            r = check_string(file, prefix, "content", err);
    }
    return r;
}

static int check_types(const json_t *body, enum form form, struct err *err)
{
    int r = check_string(body, "", "language", err);
    if (r == 0)
        r = form == FORM_FILES ? check_files_types(body, err)
                               : check_string(body, "", "code", err);
    if (r == 0 && form == FORM_FILES)
        r = check_string(body, "", "entry_file", err);
    return r < 0 ? r : check_limits_types(body, err);
}

/* The engine's checks in its order, with Hermes' own checks of names between them. */
static int check_files(const json_t *body, struct err *err)
{
    const json_t *files = json_object_get(body, "files");
    const json_t *entry = json_object_get(body, "entry_file");
    bool found = false;
    if (json_array_size(files) == 0)
        return err_field(err, "files", "Preparation Error: there are no files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *value = json_object_get(json_array_get(files, i), "name");
        const char *name = json_string_value(value);
        const char *why = str_name_problem(name, json_string_length(value));
        if (name[0] == '/' || strstr(name, ".."))
            return err_field(err, "files",
                "Security Violation: file name `%.128s` leads out of the working directory",
                name);
        if (why)
            return err_field(
                err, "files", "Preparation Error: file name `%.128s`: %s", name, why);
        found = found || json_equal(value, entry);
    }
    return found ? 0
                 : err_field(err, "entry_file",
                       "Preparation Error: entry file `%.128s` is not among the files",
                       json_string_value(entry));
}

/* Converts the body to one of POST /v1/runs. The caller owns it. */
static json_t *native_body(const json_t *body, enum form form)
{
    json_t *language = json_object_get(body, "language");
    const json_t *files = json_object_get(body, "files");
    if (form == FORM_CODE)
        return json_pack(
            "{s:O, s:O}", "language", language, "code", json_object_get(body, "code"));
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i);
        (void)json_array_append_new(
            list, json_pack("{s:O, s:O}", "name", json_object_get(file, "name"), "content",
                      json_object_get(file, "content")));
    }
    return json_pack("{s:O, s:o, s:O}", "language", language, "files", list, "entry",
        json_object_get(body, "entry_file"));
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t least(size_t offset)
{
    for (size_t i = 0; i < limit_count; i++) {
        if (limit_table[i].offset == offset)
            return limit_table[i].min;
    }
    return 1;
}

/* Sets the engine's default limits, then those of the request. Returns the field with an
 * invalid value, or NULL. A value below the minimum of a box becomes that minimum. */
static const struct limit_field *set_limits(struct call *c)
{
    struct run_limits *limits = &c->run.spec.limits;
    const struct run_limits *maxima = &c->req->state->config.maxima;
    const json_t *named = json_object_get(c->body, "limits");
    for (size_t i = 0; i < sizeof(default_times) / sizeof(default_times[0]); i++) {
        if (str_eq(default_times[i].language, c->run.spec.runtime->name)) {
            limits->wall_ms = smaller(default_times[i].wall_ms, maxima->wall_ms);
            limits->cpu_ms = smaller(default_times[i].cpu_ms, maxima->cpu_ms);
        }
    }
    for (size_t i = 0; i < LIMIT_FIELDS; i++) {
        const struct limit_field *field = &limit_fields[i];
        const json_t *value = json_object_get(named, field->name);
        uint64_t most = *(const uint64_t *)((const char *)maxima + field->offset);
        int64_t n;
        if (!json_whole(value, &n))
            continue;
        if (n <= 0 || (uint64_t)n > field->max || (uint64_t)n * field->scale > most)
            return field;
        uint64_t *member = (uint64_t *)((char *)limits + field->offset);
        *member = (uint64_t)n * field->scale;
        if (*member < least(field->offset))
            *member = least(field->offset);
    }
    return NULL;
}

static const char *hits_text(unsigned hits, char *out, size_t out_size)
{
    size_t used = 0;
    (void)snprintf(out, out_size, "none");
    for (unsigned i = 0; i < HIT_COUNT; i++) {
        if (hits & 1u << i)
            used += (size_t)snprintf(
                out + used, out_size - used, "%s%s", used ? "," : "", run_hit_name(i));
    }
    return out;
}

/* With DEBUG=true, adds a line about the stage that the answer describes. */
static void add_debug_line(const struct call *c, const struct run_result *result,
    const struct stage_result *stage, struct buf *log)
{
    const struct run_spec *spec = &c->run.spec;
    bool compiling = stage == &result->compile;
    struct run_limits limits = compiling ? spec->compile_limits : spec->limits;
    char hits[64];
    limits_fill(&limits, compiling ? &spec->runtime->compile_limits : &spec->runtime->limits);
    (void)buf_printf(log,
        "%shermes: stage=%s status=%s limits_hit=%s wall_ms=%.0f/%" PRIu64
        " cpu_ms=%.0f/%" PRIu64 " memory_kb=%" PRIu64 "/%" PRIu64 " processes_limit=%" PRIu64
        " disk_mb_limit=%" PRIu64 "\n",
        log->len && log->data[log->len - 1] != '\n' ? "\n" : "", compiling ? "compile" : "run",
        run_status_name(stage->status), hits_text(stage->limits_hit, hits, sizeof(hits)),
        stage->usage.wall_ms, limits.wall_ms, stage->usage.cpu_ms, limits.cpu_ms,
        stage->usage.memory_peak_kb, limits.memory_mb << 10, limits.processes, limits.disk_mb);
}

static int answer_result(struct call *c, const struct run_result *result)
{
    bool failed = result->run.status == RUN_COMPILE_ERROR;
    const struct stage_result *stage = failed ? &result->compile : &result->run;
    cleanup_buf struct buf log;
    buf_init(&log, stage->err.len + LOG_EXTRA);
    log.purse = &c->req->purse.counts;
    if (failed)
        (void)buf_append_str(&log, "Compilation Error:\n");
    if (buf_append(&log, stage->err.data, stage->err.len) < 0)
        return state_full(c->err);
    /* A compiler that failed has written why. One that was stopped has not. */
    if (failed && stage->status != RUN_RUNTIME_ERROR)
        (void)buf_printf(&log, "%s\n", result->run.message);
    if (c->req->state->config.debug)
        add_debug_line(c, result, stage, &log);
    return tell(c, &(struct telling){.form = c->form,
                       .code = run_exit_status(result, 0),
                       .output = {stage->out.data, stage->out.len},
                       .log = {log.data, log.len},
                       .ms = failed ? 0 : (uint64_t)llround(result->run.usage.wall_ms)});
}

/* Runs on this thread. The run is cancelled when the client leaves. */
static int run_and_answer(struct call *c)
{
    struct run_result result;
    int r = call_run(c->req, &c->run.spec, NULL, &result, c->err);
    if (r == 0 && result.run.status == RUN_CANCELLED)
        r = err_set(c->err, ERR_UNAVAILABLE, ECANCELED, "the run was cancelled");
    else if (r == 0)
        r = answer_result(c, &result);
    else if (c->err->code == ERR_INVALID)
        r = say(c, "Program preparation failed", c->err->message);
    run_result_done(&result);
    return r;
}

/* What is wrong with the language, or NULL. The caller frees it. A missing toolchain is not a
 * 503: trying again later would not help. */
static char *language_problem(const struct call *c)
{
    const json_t *language = json_object_get(c->body, "language");
    const char *name = json_string_value(language);
    bool is_whole = strlen(name) == json_string_length(language);
    const struct runtime *rt = is_whole ? runtime_find(&c->req->state->runtimes, name) : NULL;
    int shown = (int)utf8_floor(name, strnlen(name, LANGUAGE_SHOWN));
    if (!rt)
        return xasprintf("Unsupported language: %.*s", shown, name);
    if (!rt->available)
        return xasprintf("Unsupported language: %s (%s)", name, rt->missing);
    return NULL;
}

/* Answers that the request itself is wrong. */
static int say_problem(struct call *c, const char *problem)
{
    cleanup_free char *log = xasprintf("%s%s", c->form == FORM_FILES ? "" : "Error: ", problem);
    return say(c, c->form == FORM_FILES ? "Unsupported runtime" : "", log);
}

/* Reports the remaining problems in the answer, with status 200. */
static int execute_checked(struct call *c)
{
    cleanup_free char *problem = language_problem(c);
    if (problem)
        return say_problem(c, problem);
    json_t *native = native_body(c->body, c->form);
    int r = json_run_decode(
        native, &c->req->state->runtimes, &c->req->state->config.mounts, &c->run, c->err);
    json_decref(native);
    if (r == 0) /* the plan checks it too, but the engine refuses this with status 400 */
        r = run_files_check(&c->run.spec.files, c->err);
    if (r < 0)
        return err_wrap(c->err, r, "Preparation Error");
    const struct limit_field *bad = set_limits(c);
    json_decref(c->body); /* it may be large, and the run may wait in the queue */
    c->body = NULL;
    if (bad) {
        problem = xasprintf("%s limit invalid or exceeds max", bad->word);
        return say_problem(c, problem);
    }
    return run_and_answer(c);
}

static int execute(
    struct http_request *req, struct http_reply *reply, enum form form, struct err *err)
{
    struct call c = {.req = req, .reply = reply, .form = form, .err = err};
    int r = json_run_parse(req->body.data ? req->body.data : "", req->body.len, &c.body, err);
    buf_done(&req->body);
    run_spec_init(&c.run.spec);
    if (r == 0)
        r = check_types(c.body, form, err);
    if (r == -EINVAL && form == FORM_CODE) {
        /* Valid JSON of the wrong form. The engine distinguishes the two in /execute. */
        reply_text(reply, STATUS_UNPROCESSABLE, plain_text, err->message);
        r = 0;
    } else {
        if (r == 0 && form == FORM_FILES)
            r = check_files(c.body, err);
        if (r == 0)
            r = execute_checked(&c);
    }
    json_run_done(&c.run);
    json_decref(c.body);
    return r;
}

int handle_execute(struct http_request *req, struct http_reply *reply, struct err *err)
{
    return execute(req, reply, FORM_CODE, err);
}

int handle_execute_files(struct http_request *req, struct http_reply *reply, struct err *err)
{
    return execute(req, reply, FORM_FILES, err);
}
