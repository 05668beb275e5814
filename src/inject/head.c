/* SPDX-License-Identifier: Apache-2.0 */

/* See head.h. */

#include "inject/head.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

enum { LENGTH_DIGITS = 18 }; /* 19 could exceed 64 bits */

size_t head_size(const char *text, size_t len)
{
    const char *end = memmem(text, len, "\r\n\r\n", 4);
    return end ? (size_t)(end - text) + 4 : 0;
}

static bool is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool is_alnum =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_alnum && (c == 0 || !strchr("!#$%&'*+-.^_`|~", c)))
            return false;
    }
    return len > 0;
}

/* No control character: so no CR or LF alone, and no NUL. */
static bool is_text(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static int split_line(struct head *head, const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    if (!colon || head->count == HEAD_LINES || !is_token(line, (size_t)(colon - line)))
        return -EBADMSG; /* also a line that continues another: it begins with a space */
    const char *value = colon + 1;
    const char *end = line + len;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    head->lines[head->count++] =
        (struct head_line){line, (size_t)(colon - line), value, (size_t)(end - value)};
    return 0;
}

int head_split(struct head *head, const char *text, size_t len)
{
    const char *end = text + len - 2; /* the empty line */
    *head = (struct head){0};
    for (const char *at = text; at < end;) {
        const char *stop = memmem(at, (size_t)(end - at), "\r\n", 2);
        size_t size = stop ? (size_t)(stop - at) : 0;
        if (!stop || !is_text(at, size))
            return -EBADMSG;
        if (at == text) {
            head->first = at;
            head->first_len = size;
        } else if (split_line(head, at, size) < 0) {
            return -EBADMSG;
        }
        at = stop + 2;
    }
    return head->first_len ? 0 : -EBADMSG;
}

bool head_is(const struct head_line *line, const char *name)
{
    if (strlen(name) != line->name_len)
        return false;
    for (size_t i = 0; i < line->name_len; i++) {
        int a = line->name[i] == '_' ? '-' : tolower((unsigned char)line->name[i]);
        int b = name[i] == '_' ? '-' : tolower((unsigned char)name[i]);
        if (a != b)
            return false;
    }
    return true;
}

bool head_is_any(const struct head_line *line, const char *const *names)
{
    while (*names && !head_is(line, *names))
        names++;
    return *names;
}

const struct head_line *head_find(const struct head *head, const char *name, size_t *ret_count)
{
    const struct head_line *found = NULL;
    *ret_count = 0;
    for (size_t i = 0; i < head->count; i++) {
        if (head_is(&head->lines[i], name)) {
            found = &head->lines[i];
            ++*ret_count;
        }
    }
    return *ret_count == 1 ? found : NULL;
}

static int read_length(struct head *head, const struct head_line *line)
{
    if (line->value_len == 0 || line->value_len > LENGTH_DIGITS)
        return -EBADMSG;
    for (size_t i = 0; i < line->value_len; i++) {
        if (line->value[i] < '0' || line->value[i] > '9')
            return -EBADMSG;
        head->length = head->length * 10 + (uint64_t)(line->value[i] - '0');
    }
    head->has_length = true;
    return 0;
}

int head_frame(struct head *head)
{
    size_t lengths;
    size_t codings;
    const struct head_line *length = head_find(head, "Content-Length", &lengths);
    const struct head_line *coding = head_find(head, "Transfer-Encoding", &codings);
    if (lengths + codings > 1)
        return -EBADMSG;
    if (length)
        return read_length(head, length);
    if (coding && (coding->value_len != 7 || strncasecmp(coding->value, "chunked", 7) != 0))
        return -ENOTSUP;
    head->is_chunked = coding;
    return 0;
}

static bool line_has_word(const struct head_line *line, const char *word)
{
    size_t len = strlen(word);
    const char *end = line->value + line->value_len;
    for (const char *at = line->value; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        while (at < stop && (*at == ' ' || *at == '\t'))
            at++;
        while (stop > at && (stop[-1] == ' ' || stop[-1] == '\t'))
            stop--;
        if ((size_t)(stop - at) == len && strncasecmp(at, word, len) == 0)
            return true;
        at = comma ? comma + 1 : end;
    }
    return false;
}

bool head_has_word(const struct head *head, const char *name, const char *word)
{
    for (size_t i = 0; i < head->count; i++) {
        if (head_is(&head->lines[i], name) && line_has_word(&head->lines[i], word))
            return true;
    }
    return false;
}
