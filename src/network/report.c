/* SPDX-License-Identifier: Apache-2.0 */

/* See report.h. */

#include "network/report.h"

#include "base/alloc.h"
#include "base/str.h"
#include "network/entry.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS_STEP = 16, APPROVALS_MAX = 64 };

struct network_report *network_report_new(unsigned mode)
{
    struct network_report *report = xcalloc(1, sizeof(*report));
    report->mode = mode;
    report->is_complete = true;
    return report;
}

static size_t rows_size(const struct network_report *report)
{
    return report->count * sizeof(*report->rows);
}

void network_report_free(struct network_report *report)
{
    if (!report)
        return;
    size_t size = rows_size(report);
    free(report->rows);
    json_decref(report->approvals);
    if (report->purse)
        report->purse->give(report->purse, size);
    free(report);
}

bool network_row_is_valid(const struct network_row *row)
{
    size_t len = strnlen(row->host, sizeof(row->host));
    if (len == 0 || len == sizeof(row->host) || row->is_allowed > 1 ||
        row->protocol >= NETWORK_PROTOCOL_COUNT)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (row->host[i] <= ' ' || row->host[i] > '~')
            return false;
    }
    return row->is_allowed ? row->reason == 0
                           : !str_eq(network_reason_name(row->reason), "unknown");
}

static bool is_same(const struct network_row *a, const struct network_row *b)
{
    return a->is_allowed == b->is_allowed && a->protocol == b->protocol && a->port == b->port &&
           a->reason == b->reason && str_eq(a->host, b->host);
}

void network_report_add(struct network_report *report, const struct network_row *row)
{
    for (size_t i = 0; i < report->count; i++) {
        struct network_row *old = &report->rows[i];
        if (!is_same(old, row))
            continue;
        old->count += row->count;
        old->sent += row->sent;
        old->received += row->received;
        return;
    }
    if (report->count == NETWORK_MAX_ROWS) {
        report->more += row->count;
        return;
    }
    if (report->count % ROWS_STEP == 0)
        report->rows =
            xreallocarray(report->rows, report->count + ROWS_STEP, sizeof(*report->rows));
    report->rows[report->count++] = *row;
}

void network_report_add_approval(struct network_report *report, json_t *approval)
{
    if (!report->approvals)
        report->approvals = json_array();
    if (json_array_size(report->approvals) < APPROVALS_MAX)
        (void)json_array_append(report->approvals, approval);
}

void network_report_list_approvals(const struct network_report *report, json_t **list)
{
    if (!report || !report->approvals)
        return;
    if (!*list)
        *list = json_array();
    (void)json_array_extend(*list, report->approvals);
}

void network_report_charge(struct network_report *report, struct buf_purse *purse)
{
    if (!purse)
        return;
    if (purse->take(purse, rows_size(report))) {
        report->purse = purse;
        return;
    }
    for (size_t i = 0; i < report->count; i++)
        report->more += report->rows[i].count;
    report->count = 0;
}

static void write_number(struct json_text *t, const char *name, uint64_t value)
{
    json_text_add(t, name);
    json_text_int(t, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

static void write_word(struct json_text *t, const char *name, const char *word)
{
    json_text_add(t, name);
    json_text_word(t, word);
}

/* NULL when the address is not known: an upstream proxy resolves the names. */
static const char *address_text(const struct network_row *row, char text[ADDRESS_TEXT])
{
    static const struct address unknown;
    if (memcmp(&row->address, &unknown, sizeof(unknown)) == 0)
        return NULL;
    address_print(&row->address, text);
    return text;
}

static void write_row(struct json_text *t, const struct network_row *row)
{
    char address[ADDRESS_TEXT];
    write_word(t, "{\"host\":", row->host);
    if (row->is_allowed)
        write_word(t, ",\"address\":", address_text(row, address));
    write_number(t, ",\"port\":", row->port);
    write_word(t, ",\"protocol\":", network_protocol_name(row->protocol));
    write_number(t, ",\"count\":", row->count);
    if (row->is_allowed) {
        write_number(t, ",\"sent\":", row->sent);
        write_number(t, ",\"received\":", row->received);
    } else {
        write_word(t, ",\"reason\":", network_reason_name(row->reason));
    }
    json_text_add(t, "}");
}

static void write_rows(
    struct json_text *t, const struct network_report *report, bool is_allowed)
{
    bool is_first = true;
    for (size_t i = 0; i < report->count; i++) {
        if (report->rows[i].is_allowed != is_allowed)
            continue;
        json_text_add(t, is_first ? "" : ",");
        write_row(t, &report->rows[i]);
        is_first = false;
    }
}

void network_report_write(struct json_text *t, const struct network_report *report)
{
    if (!report) {
        json_text_add(t, "null");
        return;
    }
    write_word(t, "{\"mode\":", network_mode_name(report->mode));
    write_number(t, ",\"sent\":", report->sent);
    write_number(t, ",\"received\":", report->received);
    json_text_add(t, ",\"allowed\":[");
    write_rows(t, report, true);
    json_text_add(t, "],\"denied\":[");
    write_rows(t, report, false);
    write_number(t, "],\"more\":", report->more);
    json_text_add(t, ",\"complete\":");
    json_text_bool(t, report->is_complete);
    json_text_add(t, "}");
}

static void write_report(struct json_text *t, const void *context)
{
    network_report_write(t, context);
}

json_t *network_report_json(const struct network_report *report)
{
    return report ? json_text_load(write_report, report) : json_null();
}

json_t *network_row_json(const struct network_row *row)
{
    char address[ADDRESS_TEXT];
    return json_pack("{s:b, s:s, s:i, s:s, s:s?}", "allowed", row->is_allowed, "host",
        row->host, "port", row->port, "protocol", network_protocol_name(row->protocol),
        row->is_allowed ? "address" : "reason",
        row->is_allowed ? address_text(row, address) : network_reason_name(row->reason));
}
