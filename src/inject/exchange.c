/* SPDX-License-Identifier: Apache-2.0 */

/* See exchange.h. Heads are written anew from the parsed values, never passed on as bytes.
 * So the server reads exactly what was checked here. */

#include "inject/exchange.h"

#include "inject/head.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PORT_HTTPS = 443, METHOD_MAX = 32 };

enum refusal {
    REFUSE_MALFORMED,
    REFUSE_LINE,
    REFUSE_METHOD,
    REFUSE_HOST,
    REFUSE_LARGE,
    REFUSE_CODING,
    REFUSE_VERSION,
    REFUSE_SERVER,
    REFUSE_ANSWER,
    REFUSE_CODED,
};

static const struct {
    const char *status;
    const char *text;
} refusals[] = {
    [REFUSE_MALFORMED] = {"400 Bad Request",
        "the request is malformed, or could be read in more than one way"},
    [REFUSE_LINE] = {"400 Bad Request", "the first line is not METHOD, /PATH and HTTP/1.1"},
    [REFUSE_METHOD] = {"405 Method Not Allowed", "this method is not possible with a secret"},
    [REFUSE_HOST] = {"421 Misdirected Request",
        "the Host header does not name the host that this connection goes to"},
    [REFUSE_LARGE] = {"431 Request Header Fields Too Large", "the head is too large"},
    [REFUSE_CODING] = {"501 Not Implemented", "the only transfer encoding is chunked"},
    [REFUSE_VERSION] = {"505 HTTP Version Not Supported", "use HTTP/1.1"},
    [REFUSE_SERVER] = {"502 Bad Gateway",
        "the server did not answer, or its certificate is not valid for this host"},
    [REFUSE_ANSWER] = {"502 Bad Gateway", "the server's answer cannot be read"},
    [REFUSE_CODED] = {"502 Bad Gateway",
        "the server's answer is compressed, so the secret could not be taken out of it"},
};

/* Headers of a request that are about one hop, or that are written here. Ranges could cut an
 * echoed value into pieces that scrub.c does not recognize. */
static const char *const request_drops[] = {"Host", "Connection", "Keep-Alive",
    "Proxy-Connection", "Proxy-Authorization", "TE", "Trailer", "Upgrade", "HTTP2-Settings",
    "Transfer-Encoding", "Content-Length", "Accept-Encoding", "Range", "If-Range", NULL};
/* Alt-Svc names other ways to the host, which would pass by here. */
static const char *const answer_drops[] = {"Connection", "Keep-Alive", "Proxy-Connection", "TE",
    "Trailer", "Upgrade", "Transfer-Encoding", "Alt-Svc", NULL};
/* Methods that make another protocol of the connection, or that ask for an echo. */
static const char *const refused_methods[] = {"CONNECT", "TRACE", "TRACK", NULL};

static int compare_lengths(const void *a, const void *b)
{
    size_t one = strlen(*(const char *const *)a);
    size_t other = strlen(*(const char *const *)b);
    return one < other ? 1 : one > other ? -1 : 0;
}

void exchange_init(struct exchange *x, const struct exchange_rule *rule)
{
    *x = (struct exchange){.rule = rule};
    /* Longer values first: one that is part of another would leave the rest of that to see. */
    const char *values[EXCHANGE_SECRETS] = {NULL};
    for (size_t i = 0; i < rule->count; i++)
        values[i] = rule->secrets[i].value;
    qsort(values, rule->count, sizeof(values[0]), compare_lengths);
    for (size_t i = 0; i < rule->count; i++)
        scrub_init(&x->scrubs[i], values[i], strlen(values[i]));
    buf_init(&x->clean[0], 1 << 20);
    buf_init(&x->clean[1], 1 << 20);
}

void exchange_done(struct exchange *x)
{
    for (size_t i = 0; i < EXCHANGE_SECRETS; i++)
        scrub_done(&x->scrubs[i]);
    buf_done(&x->clean[0]);
    buf_done(&x->clean[1]);
}

static int refuse(struct exchange *x, enum refusal why, struct buf *to_box)
{
    x->is_over = true;
    if (x->has_begun) {
        x->is_cut = true;
        return 0;
    }
    x->has_begun = true;
    return buf_printf(to_box,
        "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
        "Connection: close\r\n\r\nhermes: %s\n",
        refusals[why].status, strlen(refusals[why].text) + strlen("hermes: \n"),
        refusals[why].text);
}

/* --- requests */

struct first_line {
    const char *method;
    size_t method_len;
    const char *target;
    size_t target_len;
};

static bool is_target(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= 0x20 || text[i] >= 0x7f || text[i] == '#')
            return false;
    }
    return len > 0 && (text[0] == '/' || (len == 1 && text[0] == '*'));
}

static bool is_method(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (!((text[i] >= 'A' && text[i] <= 'Z') || text[i] == '-' || text[i] == '_'))
            return false;
    }
    return len > 0 && len <= METHOD_MAX;
}

static bool is_word(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && memcmp(text, word, len) == 0;
}

/* Returns 0, or an enum refusal. */
static int parse_first(const struct head *head, struct first_line *ret, enum refusal *ret_why)
{
    const char *end = head->first + head->first_len;
    const char *space = memchr(head->first, ' ', head->first_len);
    const char *last = memrchr(head->first, ' ', head->first_len);
    *ret_why = REFUSE_LINE;
    if (!space || space == last)
        return -EBADMSG;
    *ret = (struct first_line){
        head->first, (size_t)(space - head->first), space + 1, (size_t)(last - space) - 1};
    if (!is_word(last + 1, (size_t)(end - last) - 1, "HTTP/1.1")) {
        if ((size_t)(end - last) == sizeof(" HTTP/1.1") - 1 &&
            memcmp(last + 1, "HTTP/", 5) == 0)
            *ret_why = REFUSE_VERSION;
        return -EBADMSG;
    }
    if (!is_method(ret->method, ret->method_len) || !is_target(ret->target, ret->target_len))
        return -EBADMSG;
    *ret_why = REFUSE_METHOD;
    for (const char *const *m = refused_methods; *m; m++)
        if (is_word(ret->method, ret->method_len, *m))
            return -EBADMSG;
    return 0;
}

/* One Host header, with the name and, unless it is the usual one, the port. */
static bool is_host(const struct exchange_rule *rule, const struct head *head)
{
    size_t count;
    size_t len = strlen(rule->host);
    const struct head_line *line = head_find(head, "Host", &count);
    if (!line || line->value_len < len || strncasecmp(line->value, rule->host, len) != 0)
        return false;
    if (line->value_len == len)
        return rule->port == PORT_HTTPS;
    uint32_t port = 0;
    if (line->value[len] != ':' || line->value_len > len + sizeof("65535"))
        return false;
    for (size_t i = len + 1; i < line->value_len; i++) {
        if (line->value[i] < '0' || line->value[i] > '9')
            return false;
        port = port * 10 + (uint32_t)(line->value[i] - '0');
    }
    return port == rule->port;
}

static bool is_secret(const struct exchange_rule *rule, const struct head_line *line)
{
    for (size_t i = 0; i < rule->count; i++) {
        if (head_is(line, rule->secrets[i].header))
            return true;
    }
    return false;
}

static int write_line(struct buf *to, const struct head_line *line)
{
    return buf_printf(to, "%.*s: %.*s\r\n", (int)line->name_len, line->name,
        (int)line->value_len, line->value);
}

/* How the body is framed, for a message that is written anew. */
static int write_frame(struct buf *to, const struct head *head, bool is_chunked)
{
    if (is_chunked)
        return buf_append_str(to, "Transfer-Encoding: chunked\r\n\r\n");
    if (head->has_length)
        return buf_printf(to, "Content-Length: %llu\r\n\r\n", (unsigned long long)head->length);
    return buf_append_str(to, "\r\n");
}

static int write_request(const struct exchange_rule *rule, const struct head *head,
    const struct first_line *first, struct buf *to)
{
    char port[sizeof(":65535")] = "";
    if (rule->port != PORT_HTTPS)
        (void)snprintf(port, sizeof(port), ":%u", (unsigned)rule->port);
    int r = buf_printf(to, "%.*s %.*s HTTP/1.1\r\nHost: %s%s\r\nAccept-Encoding: identity\r\n",
        (int)first->method_len, first->method, (int)first->target_len, first->target,
        rule->host, port);
    for (size_t i = 0; r == 0 && i < head->count; i++) {
        const struct head_line *line = &head->lines[i];
        if (!head_is_any(line, request_drops) && !is_secret(rule, line))
            r = write_line(to, line);
    }
    for (size_t i = 0; r == 0 && i < rule->count; i++)
        r = buf_printf(to, "%s: %s\r\n", rule->secrets[i].header, rule->secrets[i].line);
    return r < 0 ? r : write_frame(to, head, head->is_chunked);
}

static int read_request(struct exchange *x, const char *data, size_t size,
    struct buf *to_server, struct buf *to_box)
{
    struct head head;
    struct first_line first;
    enum refusal why;
    if (head_split(&head, data, size) < 0)
        return refuse(x, REFUSE_MALFORMED, to_box);
    if (parse_first(&head, &first, &why) < 0)
        return refuse(x, why, to_box);
    if (!is_host(x->rule, &head))
        return refuse(x, REFUSE_HOST, to_box);
    int r = head_frame(&head);
    if (r < 0)
        return refuse(x, r == -ENOTSUP ? REFUSE_CODING : REFUSE_MALFORMED, to_box);
    x->is_bodiless = is_word(first.method, first.method_len, "HEAD");
    x->is_last = head_has_word(&head, "Connection", "close");
    body_init(&x->up,
        head.is_chunked   ? BODY_CHUNKED
        : head.has_length ? BODY_LENGTH
                          : BODY_NONE,
        head.length);
    x->request = x->up.is_done ? PHASE_DONE : PHASE_BODY;
    return write_request(x->rule, &head, &first, to_server);
}

/* Writes a piece of a body; in a chunked one, as a chunk of its own. */
static int write_piece(struct buf *to, const char *data, size_t len, bool is_chunked)
{
    if (len == 0)
        return 0;
    if (!is_chunked)
        return buf_append(to, data, len);
    int r = buf_printf(to, "%zx\r\n", len);
    if (r == 0)
        r = buf_append(to, data, len);
    return r < 0 ? r : buf_append_str(to, "\r\n");
}

static int pass_request_body(struct exchange *x, const char *data, size_t len,
    struct buf *to_server, struct buf *to_box, size_t *ret_taken)
{
    bool is_chunked = x->up.framing == BODY_CHUNKED;
    while (x->request == PHASE_BODY && *ret_taken < len) {
        const char *piece;
        size_t size;
        long n = body_feed(&x->up, data + *ret_taken, len - *ret_taken, &piece, &size);
        if (n < 0)
            return refuse(x, REFUSE_MALFORMED, to_box);
        *ret_taken += (size_t)n;
        int r = write_piece(to_server, piece, size, is_chunked);
        if (r == 0 && x->up.is_done && is_chunked)
            r = buf_append_str(to_server, "0\r\n\r\n");
        if (r < 0)
            return r;
        if (x->up.is_done)
            x->request = PHASE_DONE;
    }
    return 0;
}

int exchange_request(struct exchange *x, const char *data, size_t len, struct buf *to_server,
    struct buf *to_box, size_t *ret_taken)
{
    *ret_taken = 0;
    if (!exchange_wants_request(x) || len == 0)
        return 0;
    if (x->request == PHASE_HEAD) {
        size_t size = head_size(data, len);
        if (size > HEAD_MAX || (size == 0 && len >= HEAD_MAX))
            return refuse(x, REFUSE_LARGE, to_box);
        if (size == 0)
            return 0;
        *ret_taken = size;
        int r = read_request(x, data, size, to_server, to_box);
        if (r < 0 || x->is_over)
            return r;
    }
    return pass_request_body(x, data, len, to_server, to_box, ret_taken);
}

/* --- answers */

static int clean_piece(struct exchange *x, const char *data, size_t len, bool is_end,
    const char **ret_data, size_t *ret_len)
{
    for (size_t i = 0; i < x->rule->count; i++) {
        struct buf *to = &x->clean[i % 2];
        buf_clear(to);
        int r = scrub_feed(&x->scrubs[i], data, len, to);
        if (r == 0 && is_end)
            r = scrub_flush(&x->scrubs[i], to);
        if (r < 0)
            return r;
        data = to->data;
        len = to->len;
    }
    *ret_data = data;
    *ret_len = len;
    return 0;
}

static int pass_piece(
    struct exchange *x, const char *data, size_t len, bool is_end, struct buf *to_box)
{
    bool is_chunked = x->down.framing != BODY_LENGTH;
    int r = clean_piece(x, data, len, is_end, &data, &len);
    if (r == 0)
        r = write_piece(to_box, data, len, is_chunked);
    return r == 0 && is_end && is_chunked ? buf_append_str(to_box, "0\r\n\r\n") : r;
}

/* The answer is complete. */
static void end_answer(struct exchange *x)
{
    x->answer = PHASE_DONE;
    if (x->is_last || x->request != PHASE_DONE) {
        x->is_over = true;
        return;
    }
    x->request = x->answer = PHASE_HEAD;
    x->has_begun = false;
}

/* The status of "HTTP/1.x NNN reason", or -1. */
static int read_status(const struct head *head, bool *ret_is_1_1)
{
    const char *line = head->first;
    int status = 0;
    if (head->first_len < 12 || memcmp(line, "HTTP/1.", 7) != 0 || line[8] != ' ' ||
        (line[7] != '0' && line[7] != '1') || (head->first_len > 12 && line[12] != ' '))
        return -1;
    for (int i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return -1;
        status = status * 10 + (line[i] - '0');
    }
    *ret_is_1_1 = line[7] == '1';
    return status >= 100 ? status : -1;
}

static bool is_coded(const struct head *head)
{
    for (size_t i = 0; i < head->count; i++) {
        const struct head_line *line = &head->lines[i];
        if (head_is(line, "Content-Encoding") &&
            !(line->value_len == 8 && strncasecmp(line->value, "identity", 8) == 0))
            return true;
    }
    return false;
}

static int write_answer(
    struct exchange *x, const struct head *head, bool is_chunked, struct buf *to)
{
    int r = buf_printf(to, "HTTP/1.1 %.*s\r\n", (int)head->first_len - 9, head->first + 9);
    for (size_t i = 0; r == 0 && i < head->count; i++) {
        const struct head_line *line = &head->lines[i];
        if (!head_is_any(line, answer_drops) && !head_is(line, "Content-Length"))
            r = write_line(to, line);
    }
    if (r == 0 && x->is_last)
        r = buf_append_str(to, "Connection: close\r\n");
    x->has_begun = true;
    return r < 0 ? r : write_frame(to, head, is_chunked);
}

static enum body_framing answer_framing(
    const struct exchange *x, const struct head *head, int status)
{
    if (x->is_bodiless || status == 204 || status == 304 || status < 200)
        return BODY_NONE;
    return head->is_chunked ? BODY_CHUNKED : head->has_length ? BODY_LENGTH : BODY_UNTIL_CLOSE;
}

static int read_answer(struct exchange *x, char *data, size_t size, struct buf *to_box)
{
    struct head head;
    bool is_1_1 = false;
    for (size_t i = 0; i < x->rule->count; i++)
        scrub_text(&x->scrubs[i], data, size);
    int status = head_split(&head, data, size) < 0 ? -1 : read_status(&head, &is_1_1);
    if (status < 0 || status == 101 || head_frame(&head) < 0)
        return refuse(x, REFUSE_ANSWER, to_box);
    enum body_framing framing = answer_framing(x, &head, status);
    if (framing != BODY_NONE && is_coded(&head))
        return refuse(x, REFUSE_CODED, to_box);
    if (status < 200) { /* another answer follows */
        head.has_length = false;
        int r = write_answer(x, &head, false, to_box);
        x->has_begun = false;
        return r;
    }
    x->is_last = x->is_last || !is_1_1 || framing == BODY_UNTIL_CLOSE ||
                 head_has_word(&head, "Connection", "close");
    body_init(&x->down, framing, head.length);
    x->answer = PHASE_BODY;
    bool is_chunked = framing == BODY_CHUNKED || framing == BODY_UNTIL_CLOSE;
    int r = write_answer(x, &head, is_chunked, to_box);
    if (r == 0 && x->down.is_done)
        end_answer(x);
    return r;
}

static int pass_answer_body(
    struct exchange *x, const char *data, size_t len, struct buf *to_box, size_t *ret_taken)
{
    while (x->answer == PHASE_BODY && *ret_taken < len) {
        const char *piece;
        size_t size;
        long n = body_feed(&x->down, data + *ret_taken, len - *ret_taken, &piece, &size);
        if (n < 0)
            return refuse(x, REFUSE_ANSWER, to_box);
        *ret_taken += (size_t)n;
        int r = pass_piece(x, piece, size, x->down.is_done, to_box);
        if (r < 0)
            return r;
        if (x->down.is_done)
            end_answer(x);
    }
    return 0;
}

int exchange_answer(
    struct exchange *x, char *data, size_t len, struct buf *to_box, size_t *ret_taken)
{
    *ret_taken = 0;
    if (x->is_over || len == 0)
        return 0;
    if (!exchange_wants_answer(x)) { /* an answer without a request */
        x->is_over = x->is_cut = true;
        return 0;
    }
    while (x->answer == PHASE_HEAD && exchange_wants_answer(x)) {
        size_t size = head_size(data + *ret_taken, len - *ret_taken);
        if (size > HEAD_MAX || (size == 0 && len - *ret_taken >= HEAD_MAX))
            return refuse(x, REFUSE_ANSWER, to_box);
        if (size == 0)
            return 0;
        int r = read_answer(x, data + *ret_taken, size, to_box);
        *ret_taken += size;
        if (r < 0)
            return r;
    }
    return pass_answer_body(x, data, len, to_box, ret_taken);
}

int exchange_answer_end(struct exchange *x, bool is_clean, struct buf *to_box)
{
    if (x->is_over)
        return 0;
    if (exchange_is_idle(x)) {
        x->is_over = true;
        return 0;
    }
    if (x->answer != PHASE_BODY)
        return refuse(x, REFUSE_SERVER, to_box);
    if (!is_clean || !body_close(&x->down)) {
        x->is_over = x->is_cut = true;
        return 0;
    }
    int r = pass_piece(x, "", 0, true, to_box);
    end_answer(x);
    return r;
}

void exchange_fail(struct exchange *x, struct buf *to_box)
{
    if (!x->is_over)
        (void)refuse(x, REFUSE_SERVER, to_box);
}

bool exchange_wants_request(const struct exchange *x)
{
    return !x->is_over && x->request != PHASE_DONE;
}

bool exchange_wants_answer(const struct exchange *x)
{
    return !x->is_over && x->request != PHASE_HEAD;
}

bool exchange_is_idle(const struct exchange *x)
{
    return x->request == PHASE_HEAD && x->answer == PHASE_HEAD;
}
