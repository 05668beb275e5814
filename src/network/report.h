/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The record of the attempts of a box to connect, as answers show it (`network`), and one
 * attempt as an event. Rows come from hermes-egress, and host names in them from the box: check
 * a row with network_row_is_valid() before it is used. */

#include "base/buf.h"
#include "proto/network.h"
#include "json/text.h"

#include <jansson.h>
#include <stdbool.h>

struct network_report {
    unsigned mode;    /* enum network_mode */
    bool is_complete; /* false: attempts may be missing, because hermes-egress ended */
    bool limit_hit;
    uint64_t sent;
    uint64_t received;
    uint64_t more;     /* attempts without a row */
    json_t *approvals; /* list of {id, state, effect} that its questions led to, or NULL */
    struct network_row *rows;
    size_t count;
    struct buf_purse *purse; /* counts the rows, or NULL */
};

struct network_report *network_report_new(unsigned mode);
void network_report_free(struct network_report *report); /* accepts NULL */

/* Whether every part of the row is in its range, and the host is text that can be printed. */
bool network_row_is_valid(const struct network_row *row);

/* Adds a row, or its numbers to the row of the same host, port, protocol and reason. Past
 * NETWORK_MAX_ROWS only the attempts are counted. */
void network_report_add(struct network_report *report, const struct network_row *row);

/* Adds a reference to one approval. */
void network_report_add_approval(struct network_report *report, json_t *approval);

/* Adds the approvals of a report to a list, which is made if it is NULL. */
void network_report_list_approvals(const struct network_report *report, json_t **list);

/* Counts the rows in a purse from now on, until the report is freed. Rows that the purse
 * refuses become a part of `more`. */
void network_report_charge(struct network_report *report, struct buf_purse *purse);

/* Writes the `network` object, null for NULL. */
void network_report_write(struct json_text *t, const struct network_report *report);
json_t *network_report_json(const struct network_report *report);

/* The data of the event `network`; the caller owns it. */
json_t *network_row_json(const struct network_row *row);
