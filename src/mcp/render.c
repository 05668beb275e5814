/* SPDX-License-Identifier: Apache-2.0 */

/* See render.h. `content` alone tells the model everything; nothing large is in it twice. */

#include "mcp/render.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 1 << 20, VALUE_MAX = 20000, TESTS_MAX = 50 };

static const char *text_of(const json_t *object, const char *name, size_t *ret_len)
{
    const json_t *value = json_object_get(object, name);
    *ret_len = json_string_length(value);
    return json_string_value(value);
}

/* The beginning and the end, and between them how much is missing. */
static void add_cut(struct buf *to, const char *text, size_t len, size_t most)
{
    if (len <= most) {
        (void)buf_append(to, text, len);
        return;
    }
    size_t head = utf8_floor(text, most * 2 / 5);
    size_t tail = len - most * 3 / 5;
    while (tail < len && ((unsigned char)text[tail] & 0xc0) == 0x80)
        tail++;
    (void)buf_append(to, text, head);
    (void)buf_printf(to, "\n[... %zu bytes are left out here ...]\n", tail - head);
    (void)buf_append(to, text + tail, len - tail);
}

/* A link to the whole of an output. */
static void keep_whole(
    struct execution *e, json_t *content, const char *name, const char *text, size_t len)
{
    char uri[128];
    (void)snprintf(uri, sizeof(uri), "hermes://execution/%s/%s", execution_id(e), name);
    execution_keep(
        e, name, json_pack("{s:s, s:s%}", "mimeType", "text/plain", "text", text, len));
    (void)json_array_append_new(
        content, json_pack("{s:s, s:s, s:s, s:s, s:I}", "type", "resource_link", "uri", uri,
                     "name", name, "mimeType", "text/plain", "size", (json_int_t)len));
}

static void add_stream(struct execution *e, const json_t *answer, const char *name,
    struct buf *to, json_t *content)
{
    size_t len;
    const char *text = text_of(answer, name, &len);
    if (!len)
        return;
    (void)buf_printf(to, "%s:\n", name);
    add_cut(to, text, len, RENDER_OUTPUT_MAX);
    if (text[len - 1] != '\n')
        (void)buf_append_str(to, "\n");
    if (len > RENDER_OUTPUT_MAX)
        keep_whole(e, content, name, text, len);
}

/* Images become content, and resources, so that a person can open them later. */
static void add_images(
    struct execution *e, const json_t *displays, struct buf *to, json_t *content)
{
    static const struct {
        const char *type;
        const char *extension;
    } images[] = {{"image/png", "png"}, {"image/jpeg", "jpg"}, {"image/webp", "webp"},
        {"image/gif", "gif"}};
    for (size_t i = 0; i < json_array_size(displays); i++) {
        const json_t *bundle = json_array_get(displays, i);
        bool is_image = false;
        for (size_t k = 0; !is_image && k < sizeof(images) / sizeof(images[0]); k++) {
            json_t *data = json_object_get(bundle, images[k].type);
            char name[32];
            if (!(is_image = json_is_string(data)))
                continue;
            (void)snprintf(name, sizeof(name), "chart-%zu.%s", i + 1, images[k].extension);
            execution_keep(
                e, name, json_pack("{s:s, s:O}", "mimeType", images[k].type, "blob", data));
            (void)json_array_append_new(content, json_pack("{s:s, s:O, s:s}", "type", "image",
                                                     "data", data, "mimeType", images[k].type));
        }
        size_t len;
        const char *text = is_image ? NULL : text_of(bundle, "text/plain", &len);
        if (text && len) {
            add_cut(to, text, len, VALUE_MAX);
            (void)buf_append_str(to, "\n");
        }
    }
}

static void add_error(struct buf *to, const json_t *error)
{
    const json_t *trace = json_object_get(error, "traceback");
    size_t len;
    for (size_t i = 0; i < json_array_size(trace); i++)
        (void)buf_printf(to, "%s\n", json_string_value(json_array_get(trace, i)));
    const char *message = text_of(error, "message", &len);
    const char *name = text_of(error, "name", &len);
    const char *value = text_of(error, "value", &len);
    if (message)
        (void)buf_printf(to, "Error: %s\n", message);
    else if (name && !json_array_size(trace))
        (void)buf_printf(to, "%s: %s\n", name, value ? value : "");
}

static void add_tests(struct buf *to, const json_t *tests)
{
    for (size_t i = 0; i < json_array_size(tests) && i < TESTS_MAX; i++) {
        const json_t *test = json_array_get(tests, i);
        size_t len;
        const char *name = text_of(test, "name", &len);
        const char *verdict = text_of(test, "verdict", &len);
        const char *message = text_of(test, "message", &len);
        (void)buf_printf(to, "test %s: %s%s%s\n", name ? name : "?", verdict ? verdict : "?",
            message && *message ? ": " : "", message ? message : "");
    }
}

static void add_state(struct buf *to, const json_t *answer)
{
    size_t len;
    const char *status = text_of(answer, "status", &len);
    const char *verdict = text_of(answer, "verdict", &len);
    const char *message = text_of(answer, "message", &len);
    const json_t *exit_code = json_object_get(answer, "exit_code");
    if (verdict)
        (void)buf_printf(to, "verdict: %s\n", verdict);
    else if (status && !str_eq(status, "ok"))
        (void)buf_printf(to, "status: %s\n", status);
    if (json_is_integer(exit_code) && json_integer_value(exit_code))
        (void)buf_printf(to, "exit code: %lld\n", (long long)json_integer_value(exit_code));
    if (message && *message)
        (void)buf_printf(to, "%s\n", message);
    if (json_is_true(json_object_get(answer, "state_lost")))
        (void)buf_append_str(to, "The state of the session is lost; create another session.\n");
}

static void add_compile(
    struct execution *e, const json_t *answer, struct buf *to, json_t *content)
{
    const json_t *compile = json_object_get(answer, "compile");
    size_t len;
    const char *status = text_of(compile, "status", &len);
    if (!json_is_object(compile) || str_eq(status, "ok"))
        return;
    (void)buf_append_str(to, "The compiler said:\n");
    add_stream(e, compile, "stdout", to, content);
    add_stream(e, compile, "stderr", to, content);
}

/* Removes the members that the content repeats. */
static void strip(json_t *answer)
{
    static const char *const told[] = {
        "stdout", "stderr", "displays", "result", "error", "compile", "tests", "files"};
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
        (void)json_object_del(answer, told[i]);
}

static bool is_failure(const json_t *answer)
{
    size_t len;
    const char *status = text_of(answer, "status", &len);
    return !json_object_get(answer, "verdict") && status && !str_eq(status, "ok");
}

json_t *render_answer(struct execution *e, json_t *answer)
{
    cleanup_buf struct buf to;
    size_t len;
    json_t *content = json_array();
    const json_t *error = json_object_get(answer, "error");
    buf_init(&to, TEXT_MAX);
    add_state(&to, answer);
    add_compile(e, answer, &to, content);
    add_stream(e, answer, "stdout", &to, content);
    add_stream(e, answer, "stderr", &to, content);
    add_images(e, json_object_get(answer, "displays"), &to, content);
    const char *value = text_of(json_object_get(answer, "result"), "text/plain", &len);
    if (value)
        add_cut(&to, value, len, VALUE_MAX);
    if (json_is_object(error))
        add_error(&to, error);
    add_tests(&to, json_object_get(answer, "tests"));
    if (!to.len)
        (void)buf_append_str(&to, "(no output)");
    (void)json_array_insert_new(content, 0, mcp_content_text(to.data, to.len));
    bool failed = is_failure(answer);
    strip(answer);
    json_t *result = json_pack("{s:o, s:o}", "content", content, "structuredContent", answer);
    if (failed)
        (void)json_object_set_new(result, "isError", json_true());
    return result;
}
