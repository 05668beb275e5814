/* SPDX-License-Identifier: Apache-2.0 */

/* See effect.h. effect_table has one row for each kind and one for each of its fields: to add a
 * kind, add a row. */

#include "approval/effect.h"

#include "base/address.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DESCRIBED = 160 }; /* bytes of a command in one line */

const struct effect_row effect_table[EFFECT_KIND_COUNT] = {
    [EFFECT_TOOL_CALL] = {"tool_call",
        "code calls a tool of its caller or of a connected server", false, true,
        {{"tool", MATCH_GLOB, true, true}, {"arguments", MATCH_OBJECT, true, true},
            {"method", MATCH_GLOB, false, true}, {"url", MATCH_GLOB, false, true},
            {"account", MATCH_GLOB, false, true}, {"annotations", MATCH_OBJECT, false, false},
            {"read_only", MATCH_FLAG, false, true}}},
    [EFFECT_NET_CONNECT] = {"net_connect",
        "a connection to a host that the network policy in mode `ask` does not list", true,
        true,
        {{"host", MATCH_HOST, true, true}, {"address", MATCH_ADDRESS, false, false},
            {"port", MATCH_NUMBER, true, true}, {"protocol", MATCH_GLOB, true, true}}},
    [EFFECT_MOUNT_RW] = {"mount_rw", "a request wants a directory of the operator writable",
        false, false, {{"mount", MATCH_GLOB, true, true}, {"path", MATCH_GLOB, true, true}}},
    [EFFECT_SECRET_USE] = {"secret_use", "a request wants a named secret added to its calls",
        false, true,
        {{"secret", MATCH_GLOB, true, true}, {"host", MATCH_HOST, true, true},
            {"header", MATCH_GLOB, false, true}, {"box", MATCH_GLOB, false, false}}},
    [EFFECT_HOST_EXEC] = {"host_exec", "a command for a place other than a box", true, true,
        {{"backend", MATCH_GLOB, true, true}, {"host", MATCH_HOST, false, true},
            {"cwd", MATCH_GLOB, false, true}, {"user", MATCH_GLOB, false, true},
            {"action", MATCH_GLOB, false, true}, {"argv", MATCH_WORDS, false, false},
            {"grant", MATCH_WORDS, false, true}, {"redirections", MATCH_WORDS, false, true},
            {"files", MATCH_WORDS, false, false}, {"danger", MATCH_GLOB, false, false},
            {"text", MATCH_GLOB, false, true}, {"environment", MATCH_GLOB, false, true}}},
    [EFFECT_PUBLISH] = {"publish", "a port is made reachable from outside", false, true,
        {{"port", MATCH_NUMBER, true, true}, {"address", MATCH_ADDRESS, true, true},
            {"lifetime_s", MATCH_NUMBER, false, true}}},
};

int effect_kind_find(const char *name)
{
    for (int i = 0; i < EFFECT_KIND_COUNT; i++) {
        if (str_eq(effect_table[i].name, name))
            return i;
    }
    return -ENOENT;
}

const struct effect_field *effect_field_find(enum effect_kind kind, const char *name)
{
    const struct effect_field *fields = effect_table[kind].fields;
    for (size_t i = 0; i < EFFECT_FIELDS_MAX && fields[i].name; i++) {
        if (str_eq(fields[i].name, name))
            return &fields[i];
    }
    return NULL;
}

void digest_hex(const void *data, size_t len, char out[EFFECT_DIGEST])
{
    uint8_t hash[SHA256_DIGEST_SIZE];
    struct sha256_ctx ctx;
    sha256_init(&ctx);
    sha256_update(&ctx, len, data);
    sha256_digest(&ctx, sizeof(hash), hash);
    for (size_t i = 0; i < sizeof(hash); i++)
        (void)snprintf(out + 2 * i, 3, "%02x", hash[i]);
}

static bool has_type(const json_t *value, enum effect_match match)
{
    switch (match) {
    case MATCH_GLOB:
    case MATCH_HOST:
    case MATCH_ADDRESS:
        /* A NUL would end the text for the rules, but a person would read on. */
        return json_is_string(value) &&
               strlen(json_string_value(value)) == json_string_length(value);
    case MATCH_NUMBER:
        return json_is_integer(value);
    case MATCH_FLAG:
        return json_is_boolean(value);
    case MATCH_WORDS:
        return json_is_array(value);
    case MATCH_OBJECT:
        return json_is_object(value);
    }
    return false;
}

static const char *const type_names[] = {[MATCH_GLOB] = "a string",
    [MATCH_HOST] = "a string",
    [MATCH_ADDRESS] = "a string",
    [MATCH_NUMBER] = "a whole number",
    [MATCH_FLAG] = "true or false",
    [MATCH_WORDS] = "a list of strings",
    [MATCH_OBJECT] = "an object"};

/* A word is a string, or {"dynamic": SOURCE}. */
static int check_words(const json_t *list, const char *name, struct err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *word = json_array_get(list, i);
        const json_t *source = json_object_get(word, "dynamic");
        if (!has_type(word, MATCH_GLOB) &&
            (json_object_size(word) != 1 || !has_type(source, MATCH_GLOB)))
            return err_field(err, name, "%s must be a list of strings", name);
    }
    return 0;
}

/* Whether a string has a NUL; looks inside objects and lists, too. */
static bool has_nul(const json_t *value)
{
    const char *name;
    json_t *one;
    if (json_is_string(value))
        return strlen(json_string_value(value)) != json_string_length(value);
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (has_nul(json_array_get(value, i)))
            return true;
    }
    json_object_foreach((json_t *)value, name, one)
    {
        if (has_nul(one))
            return true;
    }
    return false;
}

int effect_host(const char *text, char out[EFFECT_HOST])
{
    struct address address;
    size_t len = strlen(text);
    len -= len > 1 && text[len - 1] == '.';
    if (len >= EFFECT_HOST)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return -EINVAL;
        out[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] - 'A' + 'a') : text[i];
    }
    out[len] = '\0';
    if (address_parse(&address, out) == 0)
        address_print(&address, out);
    return 0;
}

static int take_field(const struct effect_field *field, const json_t *fields, json_t *form,
    json_t *bound, struct err *err)
{
    json_t *value = json_object_get(fields, field->name);
    if (value && json_is_null(value))
        value = NULL;
    if (!value && field->is_required)
        return err_field(err, field->name, "an effect needs `%s`", field->name);
    if (value && !has_type(value, field->match))
        return err_field(
            err, field->name, "%s must be %s", field->name, type_names[field->match]);
    if (value && has_nul(value))
        return err_field(err, field->name, "%s must not contain a NUL character", field->name);
    if (value && field->match == MATCH_WORDS && check_words(value, field->name, err) < 0)
        return -EINVAL;
    json_t *copy = value ? json_deep_copy(value) : json_null();
    char host[EFFECT_HOST];
    if (value && field->match == MATCH_HOST &&
        (effect_host(json_string_value(value), host) < 0 || json_string_set(copy, host) < 0)) {
        json_decref(copy);
        return err_field(err, field->name,
            "%s is a name in ASCII or an address; write an international name in its xn-- form",
            field->name);
    }
    (void)json_object_set_new(form, field->name, copy);
    if (field->is_bound)
        (void)json_object_set(bound, field->name, copy);
    return 0;
}

static int check_names(enum effect_kind kind, const json_t *fields, struct err *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)fields, name, value)
    {
        if (!str_eq(name, "kind") && !effect_field_find(kind, name))
            return err_field(err, name, "an effect of kind `%s` has no field `%.64s`",
                effect_table[kind].name, name);
    }
    return 0;
}

static char *canonical_text(const json_t *json)
{
    return json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
}

/* `form` and `bound` have all fields. Takes `form`. */
static int finish(enum effect_kind kind, json_t *form, const json_t *bound, struct effect *ret,
    struct err *err)
{
    cleanup_free char *bound_text = canonical_text(bound);
    char *text = canonical_text(form);
    if (!text || !bound_text || strlen(text) > EFFECT_TEXT_MAX) {
        free(text);
        json_decref(form);
        return err_set(err, ERR_TOO_LARGE, E2BIG,
            "an effect has at most %d bytes, so that a person can read all of it",
            EFFECT_TEXT_MAX);
    }
    *ret = (struct effect){.kind = kind, .json = form, .text = text};
    digest_hex(bound_text, strlen(bound_text), ret->digest);
    return 0;
}

int effect_make(
    enum effect_kind kind, const json_t *fields, struct effect *ret, struct err *err)
{
    const struct effect_row *row = &effect_table[kind];
    int r = check_names(kind, fields, err);
    if (r < 0)
        return r;
    json_t *form = json_pack("{s:s}", "kind", row->name);
    json_t *bound = json_pack("{s:s}", "kind", row->name);
    for (size_t i = 0; r == 0 && i < EFFECT_FIELDS_MAX && row->fields[i].name; i++)
        r = take_field(&row->fields[i], fields, form, bound, err);
    if (r == 0)
        r = finish(kind, form, bound, ret, err);
    else
        json_decref(form);
    json_decref(bound);
    return r;
}

int effect_read(const json_t *object, struct effect *ret, struct err *err)
{
    const char *name = json_string_value(json_object_get(object, "kind"));
    if (!name)
        return err_field(err, "kind", "kind must be a string: the kind of the effect");
    int kind = effect_kind_find(name);
    if (kind < 0)
        return err_field(err, "kind", "unknown kind of effect `%.64s`", name);
    return effect_make((enum effect_kind)kind, object, ret, err);
}

int effect_copy(const struct effect *from, struct effect *ret)
{
    *ret = *from;
    ret->json = json_deep_copy(from->json);
    ret->text = xstrdup(from->text);
    return 0;
}

void effect_done(struct effect *effect)
{
    json_decref(effect->json);
    free(effect->text);
    *effect = (struct effect){0};
}

static const char *word(const struct effect *e, const char *name)
{
    const char *text = json_string_value(json_object_get(e->json, name));
    return text ? text : "";
}

/* The words for the actions of host_exec in a sentence. */
static void describe_host(const struct effect *e, struct err *line)
{
    static const char *const names[][2] = {{"text", "run this text"},
        {"stdin", "send input to a shell or interpreter"}, {"file", "write or delete files"},
        {"terminal", "open a terminal"}, {"environment", "set variables"}};
    const json_t *argv = json_object_get(e->json, "argv");
    argv = json_is_array(argv) ? argv : json_object_get(e->json, "files");
    const char *what = "run a command";
    char shown[DESCRIBED + 1] = "";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (str_eq(names[i][0], word(e, "action")))
            what = names[i][1];
    }
    for (size_t i = 0; i < json_array_size(argv); i++) {
        const json_t *one = json_array_get(argv, i);
        const char *text = json_string_value(one);
        const char *source = json_string_value(json_object_get(one, "dynamic"));
        cleanup_free char *quoted = text ? str_shell_word(text) : xstrdup(source ? source : "");
        size_t len = strlen(shown);
        (void)snprintf(shown + len, sizeof(shown) - len, "%s%s", i ? " " : "", quoted);
    }
    size_t shown_len = strlen(shown);
    bool is_cut = shown_len == DESCRIBED;
    shown[utf8_floor(shown, shown_len)] = '\0';
    const char *danger = word(e, "danger");
    (void)err_set(line, ERR_NONE, 0, "%s on %s%s%s%s%s%s%s", what, word(e, "backend"),
        shown[0] ? ": " : "", shown, is_cut ? " ..." : "", danger[0] ? " (" : "", danger,
        danger[0] ? ")" : "");
}

char *effect_describe(const struct effect *e)
{
    long long port = (long long)json_integer_value(json_object_get(e->json, "port"));
    struct err line = {0}; /* makes the text one printable line */
    switch (e->kind) {
    case EFFECT_TOOL_CALL:
        (void)err_set(&line, ERR_NONE, 0, "call the tool %s", word(e, "tool"));
        break;
    case EFFECT_NET_CONNECT:
        (void)err_set(&line, ERR_NONE, 0, "connect to %s:%lld (%s)", word(e, "host"), port,
            word(e, "protocol"));
        break;
    case EFFECT_MOUNT_RW:
        (void)err_set(&line, ERR_NONE, 0, "write to the directory `%s`, mounted at %s",
            word(e, "mount"), word(e, "path"));
        break;
    case EFFECT_SECRET_USE:
        (void)err_set(&line, ERR_NONE, 0, "use the secret `%s` for calls to %s",
            word(e, "secret"), word(e, "host"));
        break;
    case EFFECT_HOST_EXEC:
        describe_host(e, &line);
        break;
    case EFFECT_PUBLISH:
        (void)err_set(&line, ERR_NONE, 0, "publish port %lld", port);
        break;
    case EFFECT_KIND_COUNT:
        break;
    }
    return xstrdup(line.message);
}
