/* SPDX-License-Identifier: Apache-2.0 */

/* See catalog.h. Search is lexical: each word of the query counts where it occurs, most in the
 * address. All of up to two words must occur, and three fifths of more. */

#include "mcp/catalog.h"

#include "base/cleanup.h"
#include "base/nearest.h"
#include "base/str.h"
#include "mcp/message.h"
#include "json/body.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LIMIT_DEFAULT = 12, LIMIT_MAX = 100, QUERY_MAX = 1024, PATH_MAX_LEN = 256 };

static json_t *search(const json_t *input);
static json_t *describe(const json_t *input);
static json_t *connections(const json_t *input);

static const struct catalog_row rows[] = {
    {"search", "search", "executor",
        "Finds tools by words. Returns addresses; describe.tool tells how to call one.",
        "{ query?: string; namespace?: string; limit?: number; offset?: number }",
        "{ items: { path: string; name: string; description?: string; integration: string; "
        "score: number }[]; total: number; hasMore: boolean; nextOffset: number | null }",
        search},
    {"describe.tool", "tool", "executor",
        "Describes one tool: its description and the types of its input and output.",
        "{ path: string }",
        "{ path: string; name: string; description?: string; inputTypeScript?: string; "
        "outputTypeScript?: string }",
        describe},
    {"executor.coreTools.connections.list", "list", "executor",
        "Lists the connected accounts whose tools can be called.", "{}",
        "{ connections: { address: string; owner: string; name: string; integration: string "
        "}[] }",
        connections},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

const struct catalog_row *catalog_find(const char *path)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (str_eq(rows[i].path, path))
            return &rows[i];
    }
    return NULL;
}

static json_t *failure(const char *code, const char *fmt, const char *what)
{
    char message[512];
    /* The caller's format has one %s. */
    (void)snprintf(message, sizeof(message), "%s%.200s", fmt, what);
    return json_pack("{s:b, s:{s:s, s:s}}", "ok", 0, "error", "code", code, "message", message);
}

static json_t *not_found(const char *path)
{
    json_t *answer = failure("tool_not_found", "there is no tool ", path);
    json_t *close = json_array();
    for (size_t i = 0; i < ROWS; i++) {
        if (strcasestr(rows[i].path, path) || strcasestr(path, rows[i].name))
            (void)json_array_append_new(close, json_string(rows[i].path));
    }
    (void)json_object_set_new(json_object_get(answer, "error"), "suggestions", close);
    return answer;
}

/* The worth of a row for a word: the sum of the weights of the texts that have the word. */
static unsigned worth(const struct catalog_row *row, const char *word)
{
    const struct {
        const char *text;
        unsigned weight;
    } places[] = {
        {row->path, 12}, {row->name, 10}, {row->integration, 8}, {row->description, 5}};
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (strcasestr(places[i].text, word))
            sum += places[i].weight;
    }
    return sum;
}

/* 0: does not match. An empty query matches everything. */
static unsigned score(const struct catalog_row *row, const char *query)
{
    char text[QUERY_MAX + 1];
    char *rest = text;
    char *word;
    unsigned words = 0;
    unsigned found = 0;
    unsigned sum = 0;
    (void)snprintf(text, sizeof(text), "%s", query);
    while ((word = strsep(&rest, " \t\n.,:;/_-"))) {
        if (!*word)
            continue;
        unsigned one = worth(row, word);
        words++;
        found += one > 0;
        sum += one;
    }
    bool fits = words <= 2 ? found == words : found * 5 >= words * 3;
    return fits ? sum + 1 : 0;
}

static int64_t number_of(const json_t *input, const char *name, int64_t fallback, int64_t most)
{
    int64_t value = fallback;
    if (!json_whole(json_object_get(input, name), &value) || value < 0)
        return fallback;
    return value < most ? value : most;
}

static json_t *item(const struct catalog_row *row, unsigned points)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:i}", "path", row->path, "name", row->name,
        "description", row->description, "integration", row->integration, "score", points);
}

/* The row with the best score, which becomes 0; -1 when no row is left. */
static int take_best(unsigned scores[ROWS])
{
    int best = -1;
    for (int i = 0; i < ROWS; i++) {
        if (scores[i] && (best < 0 || scores[i] > scores[best]))
            best = i;
    }
    if (best >= 0)
        scores[best] = 0;
    return best;
}

static json_t *search(const json_t *input)
{
    const char *query = mcp_text(input, "query", QUERY_MAX);
    const char *space = mcp_text(input, "namespace", PATH_MAX_LEN);
    int64_t limit = number_of(input, "limit", LIMIT_DEFAULT, LIMIT_MAX);
    int64_t offset = number_of(input, "offset", 0, ROWS);
    json_t *items = json_array();
    int64_t total = 0;
    unsigned points[ROWS];
    unsigned left[ROWS];
    int best;
    if (json_object_get(input, "query") && !query) {
        json_decref(items);
        return failure("invalid_tool_arguments", "query is a text of at most 1024 bytes", "");
    }
    for (size_t i = 0; i < ROWS; i++) {
        bool is_inside = !space || str_has_prefix(rows[i].path, space);
        points[i] = left[i] = is_inside ? score(&rows[i], query ? query : "") : 0;
    }
    while ((best = take_best(left)) >= 0) {
        if (total >= offset && total < offset + limit)
            (void)json_array_append_new(items, item(&rows[best], points[best]));
        total++;
    }
    bool more = offset + limit < total;
    return json_pack("{s:o, s:I, s:b, s:o}", "items", items, "total", (json_int_t)total,
        "hasMore", more, "nextOffset", more ? json_integer(offset + limit) : json_null());
}

static json_t *describe(const json_t *input)
{
    const char *path = mcp_text(input, "path", PATH_MAX_LEN);
    const struct catalog_row *row = path ? catalog_find(path) : NULL;
    if (!path)
        return failure("invalid_tool_arguments", "path is the address of a tool", "");
    if (!row)
        return not_found(path);
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "path", row->path, "name", row->name,
        "description", row->description, "inputTypeScript", row->input_type, "outputTypeScript",
        row->output_type);
}

static json_t *connections(const json_t *input)
{
    return json_pack("{s:[]}", "connections");
}

json_t *catalog_call(const char *path, const json_t *input)
{
    const struct catalog_row *row = catalog_find(path);
    return row ? row->call(input) : not_found(path);
}
