/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The network of a box, as the server and hermes-egress agree on it.
 *
 * Each box with a network has a *network channel*: a SOCK_SEQPACKET pair that the side which
 * asks for the box makes (the server, or `hermes run`). It keeps one end and writes
 * NETWORK_POLICY into it before it sends the other end to the spawner, with SPAWN_BOX or
 * COMMAND_NETWORK. The spawner passes that end on, unread, to hermes-egress together with the
 * sockets of the box (egress.h). Egress reads nothing of a box before it has a policy.
 *
 * When egress dies, the spawner gives the channel to the next egress, which says NETWORK_HELLO
 * and waits for NETWORK_POLICY again: a policy that was narrowed never comes back. Bytes that
 * egress sends are a stranger's: host names come from the box. Messages are fixed structs; all
 * programs are of one build. */

#include "base/address.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    NETWORK_MAX_ENTRIES = 64,
    NETWORK_MAX_RANGES = 64, /* of the operator, opened and closed, each */
    NETWORK_MAX_NAMES = 64,  /* closed by the operator */
    NETWORK_MAX_RESOLVERS = 3,
    NETWORK_NAME = 254,     /* a host name without trailing dot, with its NUL */
    NETWORK_MAX_ROWS = 256, /* of a record; more are only counted */
    NETWORK_ROWS_PER_MESSAGE = 64,
    NETWORK_CREDENTIALS = 256,
    NETWORK_MAX_SECRETS = 32,   /* of the operator; each is a bit of a policy */
    NETWORK_MAX_QUESTIONS = 16, /* of one box that wait for an answer */
};

/* In the order of what they permit. With NETWORK_ASK every destination that no entry lists
 * waits for an answer of the server (NETWORK_ASKED). */
enum network_mode {
    NETWORK_NONE,
    NETWORK_ALLOW,
    NETWORK_ASK,
    NETWORK_FULL,
    NETWORK_MODE_COUNT
};

enum network_protocol { NETWORK_TCP, NETWORK_UDP, NETWORK_DNS, NETWORK_PROTOCOL_COUNT };

enum network_target {
    TARGET_RANGE, /* addresses */
    TARGET_NAME,  /* a name itself */
    TARGET_BELOW, /* the names below it: *.name */
};

/* One ENTRY of an allow list. Names are lower case, A-labels, without trailing dot. */
struct network_entry {
    uint8_t target;   /* enum network_target */
    uint8_t protocol; /* NETWORK_TCP or NETWORK_UDP */
    uint16_t first_port;
    uint16_t last_port;
    /* an entry without ports is two entries' worth: 80 and 443 */
    uint16_t is_web; /* the ports are 80 and 443; first_port and last_port do not count */
    struct address_range range; /* TARGET_RANGE */
    char name[NETWORK_NAME];    /* else; of TARGET_BELOW without "*." */
};

/* Limits of one box, or of all boxes of a key. Zero is never allowed; UINT64_MAX or UINT32_MAX:
 * none. */
struct network_limits {
    uint32_t connections;     /* open at a time, TCP connections and UDP flows */
    uint32_t connections_all; /* over the life of the box; of a key: no such limit */
    uint32_t connections_s;   /* new ones per second */
    uint32_t lookups;         /* name look-ups outstanding */
    uint64_t sent_bytes;      /* over the life of the box; of a key: no such limit */
    uint64_t received_bytes;
    uint64_t bytes_s; /* in each direction, per second */
};

struct network_policy {
    uint32_t mode; /* enum network_mode */
    uint32_t entry_count;
    uint32_t secrets; /* bits: those of the ceiling's secrets that the box's requests get */
    uint32_t reserved;
    struct network_limits limits;
    struct network_entry entries[NETWORK_MAX_ENTRIES];
};

/* Where a secret of the operator goes to. Egress gives connections there to hermes-inject, if
 * the box asked for the secret (inject.h). */
struct network_secret {
    uint16_t port;
    char host[NETWORK_NAME];
};

/* The bounds that the operator sets. Egress enforces them even if a policy allows more. A
 * policy above it is lowered to NETWORK_NONE. */
struct network_ceiling {
    uint32_t max_mode; /* enum network_mode */
    uint32_t open_count;
    uint32_t closed_count;
    uint32_t closed_name_count;
    uint32_t
        allowed_count; /* with max_mode NETWORK_ALLOW: what entries may name; 0: anything */
    uint32_t resolver_count; /* 0: those of /etc/resolv.conf */
    uint32_t secret_count;
    uint32_t reserved;
    struct network_limits box_max;                   /* the most that a policy may say */
    struct network_limits key_max;                   /* of all boxes of one key */
    struct address_range open[NETWORK_MAX_RANGES];   /* closed ranges that entries may name */
    struct address_range closed[NETWORK_MAX_RANGES]; /* closed in addition */
    char closed_names[NETWORK_MAX_NAMES][NETWORK_NAME]; /* these names and all names below
                                                         * them are closed */
    struct network_entry allowed[NETWORK_MAX_ENTRIES];
    struct address resolvers[NETWORK_MAX_RESOLVERS];
    struct network_secret secrets[NETWORK_MAX_SECRETS];
    /* HTTP proxy for every TCP connection; port 0: none */
    struct address upstream;
    uint16_t upstream_port;
    uint8_t upstream_filters; /* the proxy refuses closed addresses: NETWORK_FULL is possible */
    uint8_t upstream_resolves; /* names are resolved by the proxy: stand-in addresses */
    char upstream_credentials[NETWORK_CREDENTIALS]; /* "user:password" or "" */
};

/* Why an attempt was denied. A reason below REASON_FIRST is an enum address_class. */
enum network_reason {
    REASON_FIRST = 64,
    REASON_NOT_LISTED = REASON_FIRST,
    REASON_CLOSED_BY_OPERATOR,
    REASON_HOST_ADDRESS,
    REASON_NO_ROUTE,
    REASON_SERVER_NAME,
    REASON_UNREADABLE_HELLO,
    REASON_BYTE_LIMIT,
    REASON_CONNECTION_LIMIT,
    REASON_LOOKUP_LIMIT,
    REASON_NAME_CLOSED,    /* a name that is never asked outside: single label, .local, ... */
    REASON_NO_NETWORK,     /* the policy is NETWORK_NONE */
    REASON_NO_SECRET,      /* hermes-inject does not run */
    REASON_NOT_APPROVED,   /* it was denied, or not answered in time */
    REASON_NO_APPROVER,    /* no approver is reachable */
    REASON_QUESTION_LIMIT, /* too many destinations wait for an approval, or were refused */
    REASON_END,
};

enum network_message_kind {
    NETWORK_POLICY = 1, /* to egress: struct network_policy_message */
    NETWORK_SNAPSHOT,   /* to egress: struct network_message; it answers NETWORK_ROWS... and
                           NETWORK_RECORD, and begins a new record */
    NETWORK_HELLO,      /* from egress: it has no policy yet, and a new record */
    NETWORK_TRIED,      /* from egress: struct network_rows with one row: first attempt of its
                           kind in this record */
    NETWORK_ROWS,       /* from egress: struct network_rows, before NETWORK_RECORD */
    NETWORK_RECORD,     /* from egress: struct network_record; also once when the box is gone,
                           and then the channel closes */
    NETWORK_ASKED,      /* from egress: struct network_question; attempts wait for the answer */
    NETWORK_WITHDRAWN,  /* from egress: struct network_answer; no attempt waits any more */
    NETWORK_ANSWER,     /* to egress: struct network_answer */
};

struct network_message {
    uint32_t kind;
    uint32_t token; /* NETWORK_SNAPSHOT: any number; NETWORK_RECORD repeats it; 0 at the end */
};

struct network_policy_message {
    uint32_t kind;
    uint32_t reserved;
    struct network_policy policy;
};

/* One row of a record: what was tried, merged by (host, port, protocol, reason). */
struct network_row {
    uint8_t is_allowed;
    uint8_t protocol; /* enum network_protocol */
    uint16_t port;
    uint32_t reason; /* enum address_class or enum network_reason; 0 when allowed */
    uint64_t count;
    uint64_t sent; /* bytes sent by the box */
    uint64_t received;
    struct address address;  /* all zero for a name that was not resolved */
    char host[NETWORK_NAME]; /* the name the address was resolved from, else the address */
};

struct network_rows {
    uint32_t kind; /* NETWORK_TRIED or NETWORK_ROWS */
    uint32_t count;
    struct network_row rows[NETWORK_ROWS_PER_MESSAGE];
};

struct network_record {
    uint32_t kind; /* NETWORK_RECORD */
    uint32_t token;
    uint32_t limit_hit; /* a limit was reached */
    uint32_t reserved;
    uint64_t sent;
    uint64_t received;
    uint64_t more; /* attempts without a row of their own */
};

/* A destination that no entry lists, in mode NETWORK_ASK. */
struct network_question {
    uint32_t kind; /* NETWORK_ASKED */
    uint32_t reserved;
    uint64_t token;         /* of this egress, never used again */
    struct network_row row; /* host, address, port, protocol. The address is all zero for a name
                               that is resolved only when it is approved */
};

/* An answer holds for the attempts that wait. `is_lasting`: it was granted before, so egress
 * may give the same answer for NETWORK_LASTING_MS without asking. */
enum { NETWORK_LASTING_MS = 30000 };
struct network_answer {
    uint32_t kind;   /* NETWORK_ANSWER or NETWORK_WITHDRAWN */
    uint32_t reason; /* 0: approved; else one of the reasons of approvals */
    uint64_t token;
    uint32_t is_lasting;
    uint32_t reserved;
};

/* What the server and egress both ask about policies (network.c). */

/* Whether names end in time, numbers are in their ranges and no limit is 0. */
bool network_policy_is_valid(const struct network_policy *policy);
bool network_ceiling_is_valid(const struct network_ceiling *ceiling);

/* In which way a valid policy exceeds a ceiling; limits do not count. With EXCESS_CLOSED and
 * EXCESS_NOT_ALLOWED, *ret_entry is the entry at fault. */
enum network_excess {
    EXCESS_NOTHING,
    EXCESS_MODE,     /* above max_mode */
    EXCESS_UPSTREAM, /* more than a list through a proxy that does not refuse closed addresses
                      */
    EXCESS_CLOSED,   /* a range or name that is closed and not opened */
    EXCESS_NOT_ALLOWED, /* an entry that `allowed` does not cover */
};
enum network_excess network_policy_excess(const struct network_policy *policy,
    const struct network_ceiling *ceiling, unsigned *ret_entry);

/* Lowers each limit to its maximum. */
void network_limits_lower(struct network_limits *limits, const struct network_limits *max);

/* Whether an entry is about this port of this protocol; about this name. */
bool network_entry_has_port(
    const struct network_entry *entry, enum network_protocol protocol, uint16_t port);
bool network_entry_has_name(const struct network_entry *entry, const char *name);

/* Whether a name is `above`, or below it. */
bool network_name_is_in(const char *name, const char *above);

/* Whether programs would read a name as an address: 10.0.0.5, 127.1, 1.0x7f. So may an upstream
 * proxy that resolves. */
bool network_name_is_number(const char *name);
