/* SPDX-License-Identifier: Apache-2.0 */

/* gate_redact(): what the reviewer must not see. A member whose name contains one of the words
 * is replaced whole; in texts, values after such a name, bearer tokens and keys that begin with
 * sk- are. */

#include "approval/gate.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum {
    TEXT_MAX = 4000, /* bytes */
    ITEMS_MAX = 40,
    DEPTH_MAX = 6,
    NAME_MAX_BYTES = 120,
    TOKEN_MIN = 8,
};

static const char redacted[] = "[REDACTED]";
static const char truncated[] = "[TRUNCATED]";

static const char *const words[] = {"api_key", "api-key", "apikey", "token", "secret",
    "password", "authorization", "cookie", "credential"};

static bool has_word(const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t size = strlen(words[i]);
        for (size_t at = 0; at + size <= len; at++) {
            if (strncasecmp(text + at, words[i], size) == 0)
                return true;
        }
    }
    return false;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

static bool is_token(char c)
{
    return isalnum((unsigned char)c) || strchr("._~+/=-", c) != NULL;
}

static size_t skip_spaces(const char *text)
{
    return strspn(text, " \t");
}

/* The length of a value that follows a name: quoted, or up to a space, comma or semicolon. */
static size_t value_length(const char *text)
{
    if (*text == '"' || *text == '\'') {
        size_t len = 1;
        while (text[len] && text[len] != *text)
            len += text[len] == '\\' && text[len + 1] ? 2 : 1;
        return len + (text[len] == *text);
    }
    return strcspn(text, " \t\r\n,;&\"'");
}

/* The length of "bearer" and of the token after it, or 0. */
static size_t bearer_length(const char *text)
{
    static const char bearer[] = "bearer";
    size_t at = sizeof(bearer) - 1;
    if (strncasecmp(text, bearer, at) != 0)
        return 0;
    size_t spaces = skip_spaces(text + at);
    size_t len = 0;
    while (text[at + spaces + len] && is_token(text[at + spaces + len]))
        len++;
    return spaces && len >= TOKEN_MIN ? at + spaces + len : 0;
}

static size_t sk_length(const char *text)
{
    size_t len = 3;
    if (strncmp(text, "sk-", 3) != 0)
        return 0;
    while (text[len] && (isalnum((unsigned char)text[len]) || strchr("_-", text[len])))
        len++;
    return len >= 3 + TOKEN_MIN ? len : 0;
}

/* The secret that begins at this place: *ret_keep bytes of it may be shown (the name), then
 * come *ret_hide bytes that may not. */
static bool find_secret(const char *text, bool begins_word, size_t *ret_keep, size_t *ret_hide)
{
    size_t name = 0;
    *ret_keep = 0;
    if (!begins_word)
        return false;
    if ((*ret_hide = bearer_length(text)) || (*ret_hide = sk_length(text)))
        return true;
    while (text[name] && is_name(text[name]))
        name++;
    size_t at = name;
    if (!name || !has_word(text, name))
        return false;
    at += text[at] == '"' || text[at] == '\''; /* the name of a JSON member */
    at += skip_spaces(text + at);
    if (text[at] != ':' && text[at] != '=')
        return false;
    at++;
    at += skip_spaces(text + at);
    *ret_keep = at;
    if (strncasecmp(text + at, "bearer ", 7) == 0)
        at += 7 + skip_spaces(text + at + 7);
    else if (strncasecmp(text + at, "basic ", 6) == 0)
        at += 6 + skip_spaces(text + at + 6);
    *ret_hide = at - *ret_keep + value_length(text + at);
    return value_length(text + at) > 0;
}

static json_t *redact_text(const char *text, size_t len, bool is_cut)
{
    cleanup_buf struct buf out;
    buf_init(&out, 4 * len + sizeof(redacted));
    bool begins_word = true;
    for (size_t at = 0; at < len;) {
        size_t keep, hide;
        if (find_secret(text + at, begins_word, &keep, &hide)) {
            (void)buf_append(&out, text + at, keep);
            (void)buf_append_str(&out, redacted);
            at += keep + hide;
            begins_word = true;
            continue;
        }
        begins_word = !is_name(text[at]);
        (void)buf_append(&out, text + at++, 1);
    }
    size_t most = is_cut && out.len > TEXT_MAX ? utf8_floor(out.data, TEXT_MAX) : out.len;
    return json_stringn(out.data ? out.data : "", most);
}

static json_t *redact(const json_t *value, bool is_cut, int depth);

static json_t *redact_object(const json_t *object, bool is_cut, int depth)
{
    json_t *copy = json_object();
    const char *name;
    json_t *one;
    size_t count = 0;
    json_object_foreach((json_t *)object, name, one)
    {
        char shown[NAME_MAX_BYTES + 1];
        size_t len = strlen(name);
        size_t most = is_cut && len > NAME_MAX_BYTES ? utf8_floor(name, NAME_MAX_BYTES) : len;
        if (is_cut && count++ == ITEMS_MAX) {
            (void)json_object_set_new(copy, truncated, json_true());
            break;
        }
        json_t *made =
            has_word(name, len) ? json_string(redacted) : redact(one, is_cut, depth + 1);
        if (most == len) {
            (void)json_object_set_new(copy, name, made);
        } else {
            (void)snprintf(shown, sizeof(shown), "%.*s", (int)most, name);
            (void)json_object_set_new(copy, shown, made);
        }
    }
    return copy;
}

static json_t *redact_list(const json_t *list, bool is_cut, int depth)
{
    json_t *copy = json_array();
    for (size_t i = 0; i < json_array_size(list) && !(is_cut && i == ITEMS_MAX); i++)
        (void)json_array_append_new(copy, redact(json_array_get(list, i), is_cut, depth + 1));
    return copy;
}

static json_t *redact(const json_t *value, bool is_cut, int depth)
{
    if (is_cut && depth >= DEPTH_MAX)
        return json_string(truncated);
    if (json_is_object(value))
        return redact_object(value, is_cut, depth);
    if (json_is_array(value))
        return redact_list(value, is_cut, depth);
    if (json_is_string(value))
        return redact_text(json_string_value(value), strlen(json_string_value(value)), is_cut);
    return json_deep_copy(value);
}

json_t *gate_redact(const json_t *value, bool is_cut)
{
    return redact(value, is_cut, 0);
}

bool gate_hides(const json_t *request)
{
    json_t *effect = json_object_get(request, "effect");
    json_t *shown = gate_redact(effect, false);
    bool is_same = json_equal(shown, effect);
    json_decref(shown);
    return !is_same;
}
