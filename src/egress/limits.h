/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Counts what a box uses, and what all boxes of a key use, against struct network_limits. The
 * account of a box has that of its key as parent; both must agree. Totals over the life of a
 * box have no counterpart in a key. */

#include "proto/network.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A token bucket. Its level may fall below zero: then it must fill first. */
struct bucket {
    uint64_t rate;     /* per second; UINT64_MAX: no limit */
    uint64_t burst;    /* the most it holds */
    int64_t thousands; /* level in thousandths */
    uint64_t at_ms;    /* when it was filled last */
};

void bucket_set(struct bucket *b, uint64_t rate, uint64_t burst, uint64_t now_ms);

/* What may be taken now; 0 when it is empty, UINT64_MAX without a limit. */
uint64_t bucket_level(struct bucket *b, uint64_t now_ms);
void bucket_take(struct bucket *b, uint64_t amount);

enum { QUESTIONS_PER_CONNECTION = 2 };

/* Directions as the box sees them. */
enum direction { SENT, RECEIVED, DIRECTION_COUNT };

struct account {
    struct account *parent; /* the key's, or NULL */
    struct network_limits limits;
    uint32_t connections; /* open now */
    uint32_t lookups;     /* outstanding now */
    uint64_t connections_all;
    uint64_t bytes[DIRECTION_COUNT];
    struct bucket attempts;
    struct bucket questions;
    struct bucket rates[DIRECTION_COUNT];
};

/* Sets the limits, for the first time or again. The counters keep their values. */
void account_limit(
    struct account *a, const struct network_limits *limits, bool is_key, uint64_t now_ms);

/* Takes a place for a connection or flow. An attempt counts for the rate even when it is
 * refused. */
bool account_connect(struct account *a, uint64_t now_ms);
void account_disconnect(struct account *a);
void account_refuse(struct account *a); /* gives the place back as if never taken */

/* Counts an attempt that needs no place; false when there were too many in this second. */
bool account_attempt(struct account *a, uint64_t now_ms);

/* Takes a place for a name look-up; false also when there were too many in this second: a
 * connection may take QUESTIONS_PER_CONNECTION, for its two kinds of addresses. */
bool account_ask(struct account *a, uint64_t now_ms);
void account_answered(struct account *a);

/* How many bytes may pass now by the rates; 0: later. */
uint64_t account_rate(struct account *a, enum direction d, uint64_t now_ms);

/* How many bytes may pass over the rest of the box's life. */
uint64_t account_left(const struct account *a, enum direction d);

/* Counts bytes that pass. */
void account_move(struct account *a, enum direction d, uint64_t bytes);

/* Whether no byte may pass any more. */
bool account_is_spent(const struct account *a);

/* The accounts of keys. */
struct owner {
    struct owner *next;
    uint32_t number;
    unsigned boxes;
    unsigned descriptors; /* that the connections and flows of its boxes hold */
    unsigned handed_over; /* connections that hermes-inject has (secrets.c) */
    struct account account;
};

/* Finds or makes the owner and counts one more box of it; owner_leave() undoes it. */
struct owner *owner_join(
    struct owner **list, uint32_t number, const struct network_limits *max, uint64_t now_ms);
void owner_leave(struct owner **list, struct owner *owner);
