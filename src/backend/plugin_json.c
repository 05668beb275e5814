/* SPDX-License-Identifier: Apache-2.0 */

/* The JSON in frames of a plug-in (plugin_frame.h). Unknown names are skipped: a newer plug-in
 * may say more. */

#include "backend/plugin_frame.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "json/read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *const plugin_limits[PLUGIN_LIMITS] = {
    [PLUGIN_CPU] = "cpu",
    [PLUGIN_MEMORY] = "memory",
    [PLUGIN_DISK] = "disk",
    [PLUGIN_PIDS] = "pids",
    [PLUGIN_NETWORK] = "network",
};

static json_t *parse(const struct buf *text, const char *kind, char words[PLUGIN_WORDS])
{
    struct json_problem problem;
    struct err err = {0};
    size_t weight;
    const char *bytes = text->data ? text->data : "";
    json_t *json = NULL;
    if (json_read_weigh(bytes, text->len, &weight, &err) == 0)
        json = json_read(bytes, text->len, &problem);
    if (!json_is_object(json)) {
        (void)snprintf(
            words, PLUGIN_WORDS, "the plug-in's `%s` is not an object of JSON", kind);
        json_decref(json);
        return NULL;
    }
    return json;
}

/* Copies an untrusted text, made printable and cut to `size`. */
static void take_text(const json_t *value, char *to, size_t size)
{
    const char *text = json_string_value(value);
    (void)place_words(to, size, text ? text : "", json_string_length(value));
}

int plugin_parse_ready(
    const struct buf *text, struct plugin_ready *ret, char words[PLUGIN_WORDS])
{
    struct plugin_ready ready = {0};
    json_t *json = parse(text, "ready", words);
    if (!json)
        return -EPROTO;
    const json_t *limits = json_object_get(json, "limits");
    const char *isolation = json_string_value(json_object_get(json, "isolation"));
    json_int_t protocol = json_integer_value(json_object_get(json, "protocol"));
    take_text(json_object_get(json, "name"), ready.name, sizeof(ready.name));
    ready.is_isolated = isolation && isolation[0] && !str_eq(isolation, "none");
    for (unsigned i = 0; i < PLUGIN_LIMITS; i++) {
        const char *word = json_string_value(json_object_get(limits, plugin_limits[i]));
        ready.enforced |= word && str_eq(word, "enforced") ? 1u << i : 0;
    }
    json_decref(json);
    if (protocol != PLUGIN_PROTOCOL) {
        (void)snprintf(words, PLUGIN_WORDS,
            "the plug-in speaks protocol %lld, and Hermes speaks %d", (long long)protocol,
            PLUGIN_PROTOCOL);
        return -EPROTO;
    }
    *ret = ready;
    return 0;
}

int plugin_parse_opened(const struct buf *text, bool *ret_resumed, char words[PLUGIN_WORDS])
{
    json_t *json = parse(text, "opened", words);
    if (!json)
        return -EPROTO;
    const json_t *resumed = json_object_get(json, "resumed");
    bool is_right = json_is_string(json_object_get(json, "id")) && json_is_boolean(resumed);
    if (is_right)
        *ret_resumed = json_is_true(resumed);
    else
        (void)snprintf(words, PLUGIN_WORDS, "the plug-in's `opened` lacks id or resumed");
    json_decref(json);
    return is_right ? 0 : -EPROTO;
}

/* The number of a limit by its name in `asked` of the request. */
static enum place_limit limit_of(const json_t *name)
{
    const char *text = json_string_value(name);
    uint32_t i = 0;
    while (i < PLACE_LIMITS && !(text && str_eq(text, place_limit_name(i))))
        i++;
    return (enum place_limit)i;
}

enum place_error plugin_parse_error(
    const struct buf *text, char words[PLUGIN_WORDS], enum place_limit *ret_limit)
{
    enum place_error found = PLACE_LOST;
    json_t *json = parse(text, "error", words);
    *ret_limit = PLACE_LIMITS;
    if (!json)
        return found;
    const char *kind = json_string_value(json_object_get(json, "kind"));
    const char *message = json_string_value(json_object_get(json, "message"));
    for (uint32_t i = PLACE_AUTH; kind && i < PLACE_ERRORS; i++)
        found = str_eq(kind, place_error_name(i)) ? (enum place_error)i : found;
    *ret_limit = limit_of(json_object_get(json, "limit"));
    if (message && message[0])
        place_quote(words, PLUGIN_WORDS, message);
    else
        (void)snprintf(words, PLUGIN_WORDS, "the plug-in names no reason");
    json_decref(json);
    return found;
}
