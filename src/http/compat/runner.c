/* SPDX-License-Identifier: Apache-2.0 */

/* Routes of the quartermaster code runner: decode, run, encode. They differ from /v1/runs only
 * in form. Prebuilt images are in prebuild.c. */

#include "http/compat/runner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/utf8.h"
#include "http/call.h"
#include "http/routes.h"
#include "run/decode.h"
#include "json/read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    METADATA_MAX = 1 << 20, /* bytes */
    EXIT_TIMEOUT = -1,
    EXIT_KILLED = 128 + 9,
};

const struct runner_image runner_images[RUNNER_IMAGE_COUNT] = {
    {"python", "python", "python", "Python", "python main.py", ".py", "main.py"},
    {"node", "javascript", "node", "Node.js", "node main.js", ".js", "main.js"},
    {"bun", "bun", "oven/bun", "Bun", "bun main.ts", ".ts", "main.ts"},
    {"go", "go", "golang", "Go", "go run main.go", ".go", "main.go"},
    {"deno", "deno", "denoland/deno", "Deno", "deno run main.ts", ".ts", "main.ts"},
    {"rust", "rust", "rust", "Rust", "cargo run", ".rs", "src/main.rs"},
};

const struct runner_image *runner_image_find(const char *name)
{
    if (str_has_prefix(name, "code-runner-"))
        name += strlen("code-runner-");
    for (size_t i = 0; i < RUNNER_IMAGE_COUNT; i++) {
        if (str_eq(runner_images[i].name, name))
            return &runner_images[i];
    }
    return NULL;
}

/* "docker.io/library/python:3.12-slim" is python. */
const struct runner_image *runner_base_find(const char *name)
{
    static const char *const prefixes[] = {"docker.io/", "library/"};
    const struct runner_image *image = runner_image_find(name);
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        name += str_has_prefix(name, prefixes[i]) ? strlen(prefixes[i]) : 0;
    size_t len = strcspn(name, ":@");
    for (size_t i = 0; !image && i < RUNNER_IMAGE_COUNT; i++) {
        const char *repository = runner_images[i].repository;
        if (strlen(repository) == len && strncmp(repository, name, len) == 0)
            image = &runner_images[i];
    }
    return image;
}

int handle_runner_images(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < RUNNER_IMAGE_COUNT; i++) {
        const struct runner_image *image = &runner_images[i];
        char id[64];
        char description[64];
        (void)snprintf(id, sizeof(id), "code-runner-%s", image->name);
        (void)snprintf(description, sizeof(description), "%s runtime", image->title);
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:[]}", "id", id, "name",
                      image->title, "description", description, "default_entrypoint",
                      image->entrypoint, "file_extension", image->extension, "main_file",
                      image->main_file, "completions"));
    }
    json_t *answer = json_pack("{s:o, s:s}", "images", list, "default", "code-runner-python");
    char *text = json_dumps(answer, JSON_COMPACT);
    json_decref(answer);
    reply_json(reply, 200, text, strlen(text));
    return 0;
}

/* The end of a stage as an exit status, as Docker and a shell report it. */
static int exit_code_of(const struct stage_result *stage)
{
    switch (stage->status) {
    case RUN_TIME_LIMIT:
        return EXIT_TIMEOUT;
    case RUN_MEMORY_LIMIT:
    case RUN_OUTPUT_LIMIT:
        return EXIT_KILLED;
    case RUN_SIGNALED:
        return 128 + stage->signal;
    default:
        return stage->exited ? stage->exit_code : EXIT_TIMEOUT;
    }
}

/* Writes output as a JSON string, followed by a line of Hermes itself if there is one. */
static void quote(struct json_text *t, const struct buf *output, const char *message)
{
    char line[1024];
    bool is_open = output->len && output->data[output->len - 1] != '\n';
    json_text_open(t);
    json_text_part(t, output->data ? output->data : "", output->len);
    if (message[0]) {
        (void)snprintf(line, sizeof(line), "%s[hermes] %s\n", is_open ? "\n" : "", message);
        json_text_part(t, line, strlen(line));
    }
    json_text_close(t);
}

/* What the answer says about a run. */
struct telling {
    const struct stage_result *stage;
    const char *message;
    int exit_code;
    double seconds;
    const char *metadata; /* JSON, or NULL */
};

static void write_telling(struct json_text *t, const void *context)
{
    const struct telling *telling = context;
    char seconds[64];
    json_text_add(t, "{\"stdout\":");
    quote(t, &telling->stage->out, "");
    json_text_add(t, ",\"stderr\":");
    quote(t, &telling->stage->err, telling->message);
    json_text_add(t, ",\"exit_code\":");
    json_text_int(t, telling->exit_code);
    (void)snprintf(seconds, sizeof(seconds), ",\"execution_time\":%.4f", telling->seconds);
    json_text_add(t, seconds);
    json_text_add(t, ",\"metadata\":");
    json_text_add(t, telling->metadata ? telling->metadata : "null");
    json_text_add(t, "}");
}

/* Returns the text of the metadata file if it is valid JSON. The answer contains it unchanged,
 * so no number loses digits. Otherwise NULL; the program wrote the file, so it may contain
 * anything. */
static const char *metadata_of(struct http_request *req, const struct run_result *result)
{
    const struct run_file *file = run_files_find(&result->files, RUNNER_METADATA);
    const char *why = !file ? NULL : file->error;
    json_t *value = NULL;
    struct err err = {0};
    size_t at;
    size_t weight = 0;
    if (!file || result->run.status == RUN_TIME_LIMIT)
        return NULL;
    if (!why && (file->size == 0 || file->size > METADATA_MAX))
        why = "empty or too large";
    if (!why && json_read_weigh(file->content, file->size, &weight, &err) < 0)
        why = err.message;
    if (!why && !purse_take(&req->purse, weight))
        why = "no memory";
    if (!why && json_run_parse_any(file->content, file->size, &value, &at, &err) < 0)
        why = err.message;
    json_decref(value);
    if (!why)
        return file->content;
    log_event(LOG_INFO, "metadata is left out", "run", result->id, "reason", why, (char *)NULL);
    return NULL;
}

static int encode(struct http_request *req, const struct run_result *result, double seconds,
    struct http_reply *reply, struct err *err)
{
    bool ran = result->run.status != RUN_COMPILE_ERROR;
    const struct stage_result *stage = ran ? &result->run : &result->compile;
    /* The original says nothing when time or memory runs out. It has no other limits. */
    bool is_told = stage->status == RUN_OUTPUT_LIMIT ||
                   (!ran && (stage->limits_hit || stage->status == RUN_OK));
    int exit_code = exit_code_of(stage);
    if (!ran && exit_code == 0) /* the compiler succeeded but made no program */
        exit_code = 1;
    const struct telling telling = {.stage = stage,
        .message = !is_told ? ""
                   : ran    ? stage->message
                            : result->run.message,
        .exit_code = exit_code,
        .seconds = seconds,
        .metadata = metadata_of(req, result)};
    struct answer *answer =
        json_text_answer(req->state->ledger, req->owner, NULL, write_telling, &telling);
    if (!answer)
        return state_full(err);
    reply_answer(reply, 200, answer);
    return 0;
}

/* Runs the request on this thread. The run is cancelled when the client leaves. */
static int run_request(struct http_request *req, struct runner_request *request,
    uint64_t began_ns, struct http_reply *reply, struct err *err)
{
    struct run_result result;
    int r = call_run(req, &request->spec, NULL, &result, err);
    if (r == 0 && result.run.status == RUN_CANCELLED)
        r = err_set(err, ERR_UNAVAILABLE, ECANCELED, "the run was cancelled");
    if (r == 0)
        r = encode(req, &result, (double)(clock_ns() - began_ns) / 1e9, reply, err);
    run_result_done(&result);
    return r;
}

/* Answers a run whose timeout is 0 or less. */
static int answer_late(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct run_result none;
    run_result_init(&none, 1);
    none.run.status = RUN_TIME_LIMIT;
    int r = encode(req, &none, 0, reply, err);
    run_result_done(&none);
    return r;
}

int handle_runner_run(struct http_request *req, struct http_reply *reply, struct err *err)
{
    json_t *detail = json_array();
    json_t *body = NULL;
    struct runner_request request = {0};
    uint64_t began_ns = clock_ns();
    int r = fastapi_body(req, &body, detail);
    if (r == 0) {
        r = runner_request_decode(req, body, &request, detail, err);
        buf_done(&req->body);
        if (r == 0)
            r = request.is_late ? answer_late(req, reply, err)
                                : run_request(req, &request, began_ns, reply, err);
        runner_request_done(&request);
    }
    if (json_array_size(detail) > 0) {
        fastapi_refuse(reply, detail);
        r = 0;
    }
    json_decref(body);
    json_decref(detail);
    return r;
}
