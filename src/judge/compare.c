/* SPDX-License-Identifier: Apache-2.0 */

/* See compare.h. Both texts are read as gap, token, gap, token, ... gap. The output pushes its
 * pieces and pulls the expected text along. So one pass finds out whether the bytes, the
 * trimmed lines or only the tokens agree. Of a gap or token of any length only the first bytes
 * and a keyed hash of the rest are kept. The key is random and unknown to the program, so it
 * cannot aim at a collision. */

#include "judge/compare.h"

#include "base/alloc.h"
#include "base/id.h"
#include "judge/siphash.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RUN_HEAD = 256,         /* bytes of a gap or token that are kept; the rest is hashed */
    EXPECTED_CHUNK = 65536, /* bytes that one read takes from the file with the expected text */
    END = -1,               /* expected_peek() returns it after the last byte */
};

const char *const compare_names[COMPARE_KINDS] = {
    "exact", "trim", "tokens", "float", "unordered"};

/* A sequence of bytes of any length. */
struct run {
    uint64_t len;
    struct siphash rest; /* hash of the bytes beyond head */
    char head[RUN_HEAD];
};

struct gap {
    struct run all;
    struct run tail; /* after the last newline */
    uint64_t newlines;
};

/* A multiset of lines: their number and the sum of their hashes. */
struct lines {
    uint64_t count;
    uint64_t sum[2];
    struct siphash now;  /* hash of the current line so far */
    struct siphash kept; /* the same up to the last byte that is not white space */
};

struct compare {
    struct compare_rule rule;
    struct siphash_key key;
    bool bytes_same, lines_same, tokens_same;
    char why[128];
    int error;

    /* State of the output. */
    bool in_token;
    struct gap gap;
    struct run token;
    struct lines lines;
    uint64_t line, column;

    /* State of the expected text. */
    struct compare_text expected;
    size_t taken; /* bytes read from the file */
    const char *at, *end;
    char *chunk;
    struct gap expected_gap;
    struct run expected_token;
};

static bool is_space(int c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void run_add(struct compare *c, struct run *run, char byte)
{
    if (run->len < RUN_HEAD) {
        run->head[run->len++] = byte;
        return;
    }
    if (run->len++ == RUN_HEAD)
        siphash_init(&run->rest, &c->key);
    siphash_add(&run->rest, (unsigned char)byte);
}

static bool run_same(const struct run *a, const struct run *b)
{
    uint64_t rest_a[2];
    uint64_t rest_b[2];
    if (a->len != b->len ||
        memcmp(a->head, b->head, a->len < RUN_HEAD ? a->len : RUN_HEAD) != 0)
        return false;
    if (a->len <= RUN_HEAD)
        return true;
    siphash_end(a->rest, rest_a);
    siphash_end(b->rest, rest_b);
    return memcmp(rest_a, rest_b, sizeof(rest_a)) == 0;
}

static void gap_add(struct compare *c, struct gap *gap, char byte)
{
    run_add(c, &gap->all, byte);
    if (byte == '\n') {
        gap->newlines++;
        gap->tail.len = 0;
    } else {
        run_add(c, &gap->tail, byte);
    }
}

static void gap_clear(struct gap *gap)
{
    gap->all.len = gap->tail.len = gap->newlines = 0;
}

struct compare *compare_new(
    const struct compare_rule *rule, const struct compare_text *expected)
{
    struct compare *c = xcalloc(1, sizeof(*c));
    c->rule = *rule;
    c->bytes_same = c->lines_same = c->tokens_same = true;
    c->line = c->column = 1;
    c->expected = *expected;
    if (expected->fd >= 0) {
        c->chunk = xmalloc(EXPECTED_CHUNK);
        c->at = c->end = c->chunk;
    } else {
        c->at = expected->data;
        c->end = c->at + expected->size;
    }
    id_random(&c->key, sizeof(c->key));
    siphash_init(&c->lines.now, &c->key);
    return c;
}

void compare_free(struct compare *compare)
{
    if (compare)
        free(compare->chunk);
    free(compare);
}

/* Returns the next byte of the expected text without taking it; END after the last. */
static int expected_peek(struct compare *c)
{
    if (c->at < c->end)
        return (unsigned char)*c->at;
    if (c->expected.fd < 0 || c->error)
        return END;
    ssize_t n;
    do
        n = pread(c->expected.fd, c->chunk, EXPECTED_CHUNK, (off_t)c->taken);
    while (n < 0 && errno == EINTR);
    if (n <= 0) {
        c->error = n < 0 ? -errno : 0;
        return END;
    }
    c->taken += (size_t)n;
    c->at = c->chunk;
    c->end = c->chunk + n;
    return (unsigned char)*c->at;
}

static void differ(struct compare *c, const char *what)
{
    c->bytes_same = c->lines_same = c->tokens_same = false;
    (void)snprintf(c->why, sizeof(c->why), "line %llu, column %llu: %s",
        (unsigned long long)c->line, (unsigned long long)c->column, what);
}

static void differ_in_space(struct compare *c)
{
    if (!c->why[0])
        (void)snprintf(c->why, sizeof(c->why),
            "white space differs before line %llu, column %llu", (unsigned long long)c->line,
            (unsigned long long)c->column);
}

/* Reads the expected text up to its next token; false when there is none. */
static bool expected_skip_gap(struct compare *c)
{
    int byte;
    while (is_space(byte = expected_peek(c)))
        gap_add(c, &c->expected_gap, *c->at++);
    return byte != END;
}

/* Call when the output reaches a token, or, with `at_end`, its end. */
static void meet_gap(struct compare *c, bool at_end)
{
    bool more = expected_skip_gap(c);
    if (more == at_end) {
        differ(c, more ? "the output ends too early" : "more output than expected");
        return;
    }
    if (!run_same(&c->gap.all, &c->expected_gap.all)) {
        c->bytes_same = false;
        bool same = c->gap.newlines == c->expected_gap.newlines &&
                    run_same(&c->gap.tail, &c->expected_gap.tail);
        c->lines_same = c->lines_same && (same || at_end);
        if (c->rule.kind == COMPARE_EXACT || !c->lines_same)
            differ_in_space(c);
    }
    gap_clear(&c->gap);
    gap_clear(&c->expected_gap);
}

/* Compares while both texts are inside a token. Returns how many bytes of data were
 * compared. */
static size_t meet_token(struct compare *c, const char *data, size_t len)
{
    size_t i = 0;
    while (i < len && !is_space((unsigned char)data[i])) {
        if (c->at == c->end && expected_peek(c) == END)
            break;
        if (*c->at != data[i])
            break;
        c->at++;
        i++;
    }
    c->column += i;
    if (i < len && !is_space((unsigned char)data[i]))
        differ(c, "differs from what is expected");
    return i;
}

static void end_line(struct compare *c, bool is_newline)
{
    c->column++;
    if (is_newline) {
        c->line++;
        c->column = 1;
    }
}

static void feed_words(struct compare *c, const char *data, size_t len)
{
    for (size_t i = 0; i < len && c->tokens_same;) {
        if (is_space((unsigned char)data[i])) {
            /* The output's token ends; the expected token must end here too. */
            if (c->in_token && !is_space(expected_peek(c)) && expected_peek(c) != END) {
                differ(c, "differs from what is expected");
                return;
            }
            c->in_token = false;
            end_line(c, data[i] == '\n');
            gap_add(c, &c->gap, data[i++]);
            continue;
        }
        if (!c->in_token) {
            c->in_token = true;
            meet_gap(c, false);
        }
        if (c->tokens_same)
            i += meet_token(c, data + i, len - i);
    }
}

/* Accepts digits with an optional sign, point and exponent, and nothing else that strtod()
 * would take. */
static bool read_number(const struct run *run, double *ret)
{
    char text[RUN_HEAD + 1];
    size_t i = 0;
    size_t digits = 0;
    if (run->len == 0 || run->len > RUN_HEAD)
        return false;
    memcpy(text, run->head, run->len);
    text[run->len] = '\0';
    i += text[i] == '+' || text[i] == '-';
    for (; text[i] >= '0' && text[i] <= '9'; i++)
        digits++;
    i += text[i] == '.';
    for (; text[i] >= '0' && text[i] <= '9'; i++)
        digits++;
    if (digits && (text[i] == 'e' || text[i] == 'E')) {
        i++;
        i += text[i] == '+' || text[i] == '-';
        digits = 0;
        for (; text[i] >= '0' && text[i] <= '9'; i++)
            digits++;
    }
    if (!digits || text[i])
        return false;
    *ret = strtod(text, NULL);
    return true;
}

static bool close_enough(const struct compare_rule *rule, double got, double want)
{
    double off = fabs(got - want);
    return got == want || off <= rule->absolute || off <= rule->relative * fabs(want);
}

/* The output's token is complete: compares it with the next token of the expected text. */
static void meet_number(struct compare *c)
{
    double got;
    double want;
    int byte;
    c->expected_token.len = 0;
    (void)expected_skip_gap(c);
    gap_clear(&c->expected_gap);
    while ((byte = expected_peek(c)) != END && !is_space(byte))
        run_add(c, &c->expected_token, *c->at++);
    if (c->expected_token.len == 0)
        differ(c, "more output than expected");
    else if (!run_same(&c->token, &c->expected_token) &&
             !(read_number(&c->token, &got) && read_number(&c->expected_token, &want) &&
                 close_enough(&c->rule, got, want)))
        differ(c, "differs from what is expected");
    c->token.len = 0;
}

static void feed_numbers(struct compare *c, const char *data, size_t len)
{
    for (size_t i = 0; i < len && c->tokens_same; i++) {
        if (!is_space((unsigned char)data[i])) {
            run_add(c, &c->token, data[i]);
            c->column++;
            continue;
        }
        if (c->token.len)
            meet_number(c);
        end_line(c, data[i] == '\n');
    }
}

static void lines_end(struct compare *c, struct lines *lines)
{
    uint64_t hash[2];
    if (lines->kept.len) {
        siphash_end(lines->kept, hash);
        lines->sum[0] += hash[0];
        lines->sum[1] += hash[1];
        lines->count++;
    }
    siphash_init(&lines->now, &c->key);
    lines->kept.len = 0;
}

static void lines_add(struct compare *c, struct lines *lines, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\n') {
            lines_end(c, lines);
            continue;
        }
        siphash_add(&lines->now, (unsigned char)data[i]);
        if (!is_space((unsigned char)data[i]))
            lines->kept = lines->now;
    }
}

void compare_feed(struct compare *compare, const char *data, size_t len)
{
    if (compare->rule.kind == COMPARE_UNORDERED)
        lines_add(compare, &compare->lines, data, len);
    else if (compare->rule.kind == COMPARE_FLOAT)
        feed_numbers(compare, data, len);
    else
        feed_words(compare, data, len);
}

static void finish_lines(struct compare *c)
{
    struct lines expected = {0};
    siphash_init(&expected.now, &c->key);
    while (expected_peek(c) != END) {
        lines_add(c, &expected, c->at, (size_t)(c->end - c->at));
        c->at = c->end;
    }
    lines_end(c, &expected);
    lines_end(c, &c->lines);
    c->tokens_same = c->lines.count == expected.count &&
                     memcmp(c->lines.sum, expected.sum, sizeof(expected.sum)) == 0;
    if (c->lines.count != expected.count)
        (void)snprintf(c->why, sizeof(c->why), "%llu lines, which is too %s",
            (unsigned long long)c->lines.count,
            c->lines.count > expected.count ? "many" : "few");
    else if (!c->tokens_same)
        (void)snprintf(c->why, sizeof(c->why), "the lines are not the expected ones");
    c->bytes_same = c->lines_same = c->tokens_same;
}

static void finish_numbers(struct compare *c)
{
    if (c->tokens_same && c->token.len)
        meet_number(c);
    if (c->tokens_same && expected_skip_gap(c))
        differ(c, "the output ends too early");
}

static void finish_words(struct compare *c)
{
    int byte = c->in_token ? expected_peek(c) : END;
    if (!c->tokens_same)
        return;
    if (byte != END && !is_space(byte)) {
        differ(c, "the output ends too early");
        return;
    }
    meet_gap(c, true);
}

int compare_finish(
    struct compare *compare, enum compare_answer *ret, char *why, size_t why_size)
{
    struct compare *c = compare;
    if (c->rule.kind == COMPARE_UNORDERED)
        finish_lines(c);
    else if (c->rule.kind == COMPARE_FLOAT)
        finish_numbers(c);
    else
        finish_words(c);
    if (c->error < 0)
        return c->error;
    bool same = c->rule.kind == COMPARE_EXACT  ? c->bytes_same
                : c->rule.kind == COMPARE_TRIM ? c->lines_same
                                               : c->tokens_same;
    *ret = same ? COMPARE_SAME : c->tokens_same ? COMPARE_SPACE : COMPARE_DIFFERENT;
    if (why)
        (void)snprintf(why, why_size, "%s", same ? "" : c->why);
    return 0;
}
