/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of hermes-egress. The program has one thread and one epoll. It holds
 * the sockets of each box (proto/egress.h), and carries bytes between them and sockets of
 * its own outside. Every byte from a box is hostile.
 *
 *   loop.c     waits, and serves the boxes that have something to do in turn
 *   adopt.c    messages of the spawner: a box comes, a box goes
 *   box.c      the parts of a box; its policy; what is decided for every attempt
 *   channel.c  messages of the server about a box, and the record for it
 *   tcp.c      connections until both sides are connected
 *   relay.c    connections from then on
 *   udp.c      datagrams
 *   lookup.c   questions for names
 *   ask.c      attempts that wait for an approval
 *   inject.c   packets into a box
 *   secrets.c  connections that go through hermes-inject
 *   route.c    what the host's routes say about an address
 *   policy.c, limits.c, record.c: see their headers */

#include "egress/hello.h"
#include "egress/limits.h"
#include "egress/packet.h"
#include "egress/pins.h"
#include "egress/policy.h"
#include "egress/record.h"
#include "egress/resolver.h"
#include "egress/upstream.h"
#include "proto/egress.h"
#include "proto/network.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

enum {
    TURN_BYTES = 256 << 10, /* of a box, before the next box has its turn */
    CHUNK = 64 << 10,       /* moved at once */
    STEP_COST = 4096, /* bytes of a turn that a report, a datagram, an accepted connection or a
                         question costs */
    STARVED_MS = 10,  /* how long a box waits when its rate is used up */
    SWEEP_MS = 500,   /* how often deadlines are looked at */

    CONNECT_MS = 10000,      /* until a server answers, and until the box takes the answer */
    HELLO_MS = 10000,        /* from the first byte of a TLS hello to the last */
    QUESTION_MS = 30000,     /* of silence on a connection for names */
    HALF_CLOSED_MS = 60000,  /* of silence after the box has ended its side */
    SERVER_GONE_MS = 600000, /* ... and after the server has */
    FLOW_MS = 30000,         /* of silence between datagrams */
    LEAVING_MS = 1000,       /* for bytes that programs wrote just before they ended */
    FAREWELL_MS = 10000,     /* until the server has read the last record */

    TABLE = 128, /* slots of the hash tables of a box */
    DNS_PORT = 53,
};

struct box;
struct egress;

/* --- loop.c */

enum served {
    SERVED_ALL,     /* nothing is left until the next event */
    SERVED_MORE,    /* its share of the turn is used up */
    SERVED_STARVED, /* it waits for the rate */
};

/* A descriptor in the epoll. The sources of a box are served in the turn of the box; their
 * events are edge-triggered, so `is_readable` and `is_writable` stay until a call says EAGAIN.
 * Others are served at once, as long as they are readable. */
struct source {
    TAILQ_ENTRY(source) entry; /* of box->ready */
    struct box *box;           /* or NULL */
    enum served (*serve)(struct source *s);
    void *owner;
    int fd; /* owned */
    bool is_queued;
    bool is_readable;
    bool is_writable;
    bool is_hung_up; /* the peer sends no more */
};
TAILQ_HEAD(source_list, source);

int loop_init(struct egress *e);
void loop_run(struct egress *e) __attribute__((noreturn));
int loop_add(struct egress *e, struct source *s);
void loop_queue(struct source *s);
void loop_close(struct egress *e, struct source *s);
void loop_forget(struct box *b); /* the loop does not serve the box any more */

/* --- connections, flows, look-ups */

struct question;

enum conn_state {
    CONN_HELD,       /* waits for an approval */
    CONN_CONNECTING, /* outside */
    CONN_PROXYING,   /* the upstream proxy connects */
    CONN_WAITING,    /* for the box, which has its SYN accepted */
    CONN_RELAYING,
    CONN_ASKING, /* port 53: questions for names */
    CONN_DEAD,   /* freed at the end of the turn */
};

enum conn_check {
    CHECK_NONE,
    CHECK_PENDING, /* nothing goes out before the TLS server name is known */
    CHECK_DONE,
};

/* One direction of a connection. */
struct half {
    bool is_shut; /* the sender has ended it, and the receiver was told */
};

struct conn {
    TAILQ_ENTRY(conn) entry; /* of box->conns or egress->dead_conns */
    struct conn *next;       /* in the slot of box->conn_table */
    struct box *box;
    enum conn_state state;
    enum conn_check check;
    struct source inside;
    struct source outside;
    struct half up;
    struct half down;
    uint64_t deadline_ms; /* UINT64_MAX: none */
    struct packet_syn syn;
    struct upstream upstream;
    struct record_ref ref;
    char *server_name; /* that was permitted, or NULL */
    bool is_by_name;   /* a name permits it: the TLS server name must be permitted too */
    uint32_t possible; /* secrets, if the TLS server name is their host */
    uint32_t secrets;  /* secrets that it was handed over with; 0: it was not handed over */
    struct lookup *lookup;
    struct question *question; /* while it is held */
    bool is_approved;          /* an approval permits it, for its host and port */
    struct address to;         /* outside; other than the destination behind a stand-in */
};
TAILQ_HEAD(conn_list, conn);

struct flow {
    TAILQ_ENTRY(flow) entry; /* of box->flows or egress->dead_flows */
    struct flow *next;       /* in the slot of box->flow_table */
    struct box *box;
    struct source outside;
    struct packet_ends ends;
    uint64_t deadline_ms;
    struct record_ref ref;
    struct question *question; /* while it is held */
    bool is_approved;
    struct address to;
    uint8_t *held; /* its first datagram, while it is held */
    size_t held_len;
};
TAILQ_HEAD(flow_list, flow);

struct lookup;
TAILQ_HEAD(lookup_list, lookup);

TAILQ_HEAD(question_list, question);

/* --- a box */

struct letter; /* a message that waits for room in the channel */
STAILQ_HEAD(letter_list, letter);

struct box {
    TAILQ_ENTRY(box) entry;       /* of egress->boxes */
    TAILQ_ENTRY(box) ready_entry; /* of egress->ready_boxes or ->starved_boxes */
    struct egress *egress;
    struct owner *owner;
    uint64_t number;
    bool has_policy;
    bool has_v6;
    bool is_leaving;  /* its programs have ended: only their last bytes are still sent */
    bool is_finished; /* only the channel is left, for the last record */
    bool is_dead;     /* freed at the end of the turn */
    bool is_ready;
    bool is_starved;
    bool is_served; /* right now */

    struct source channel;
    struct source kit[KIT_RAW4]; /* reports and listeners */
    int raw[2];                  /* IPv4, IPv6 */
    struct letter_list letters;
    uint64_t end_ms; /* deadline for leaving, then for the last message */

    struct network_policy policy;
    struct pins pins;
    struct account account;
    struct record record;

    struct source_list ready;
    unsigned ready_count;
    int64_t turn_left; /* bytes */

    struct conn_list conns;
    struct flow_list flows;
    struct lookup_list lookups;
    struct question_list questions;
    uint32_t refused; /* questions that led to nothing */
    struct conn *conn_table[TABLE];
    struct flow *flow_table[TABLE];
};
TAILQ_HEAD(box_list, box);

struct egress {
    int epoll_fd;
    int route_fd;
    uint64_t now_ms;
    uint64_t swept_ms;
    uint64_t wake_ms; /* when the next starved box is served */
    struct source spawner;
    struct source names;
    struct source inject_link; /* where the sockets of hermes-inject come from */
    struct source inject;      /* fd -1: it does not run */
    struct resolver *resolver;
    unsigned descriptors; /* held, and set aside for what is under way */
    unsigned max_descriptors;
    struct owner *owners;
    struct box_list boxes;
    struct box_list ready_boxes;
    struct box_list starved_boxes;
    struct box_list dead_boxes;
    struct conn_list dead_conns;
    struct flow_list dead_flows;
    uint64_t last_token; /* of questions */
    struct network_ceiling ceiling;
    uint8_t buffer[CHUNK + 1]; /* for the box that is served */
};

/* --- adopt.c */

/* Waits for the ceiling. *ret_link: what secrets_open() takes. Returns 0 or negative errno. */
int adopt_ceiling(struct egress *e, int fd, int *ret_link);
enum served adopt_serve(struct source *s);

/* --- box.c */

struct box *box_new(struct egress *e, uint64_t number, uint32_t owner);
void box_take_kit(struct box *b, int fds[KIT_COUNT]); /* owned from now on; -1: none */
void box_set_policy(struct box *b, const struct network_policy *policy);

/* Ends every connection, flow and look-up, and closes the kit. The channel lives on. */
void box_empty(struct box *b);

/* The box is gone. First the bytes that its programs have written are sent, for LEAVING_MS at
 * most. Then everything is closed, the server gets the last record, and the channel closes. */
void box_drop(struct box *b);
void box_finish_if_empty(struct box *b);
void box_bury(struct box *b);   /* closes all; freed at the end of the turn */
void box_free(struct box *b);   /* for loop.c */
void box_sweep(struct box *b);  /* ends what has reached its deadline */
void box_exceed(struct box *b); /* the byte limit was reached: ends all connections */
struct policy_view box_view(const struct box *b);

/* Decides about a new connection or flow and counts the attempt. When it is not denied, a place
 * and `descriptors` are taken until box_release(). */
struct attempt {
    enum network_protocol protocol;
    struct address address;
    uint16_t port;
    unsigned descriptors;
};
enum admission {
    ADMITTED,
    ADMIT_DENIED,
    ADMIT_ASK, /* it may wait for an approval, with its place; nothing is recorded yet */
};
enum admission box_admit(
    struct box *b, const struct attempt *a, struct record_ref *ref, bool *ret_is_by_name);

/* The end of a wait: records the attempt. Reason 0: it is allowed, to this address. */
void box_settle(
    struct box *b, struct record_ref *ref, uint32_t reason, const struct address *to);

/* Whether there is a way to an address: 0, REASON_HOST_ADDRESS or REASON_NO_ROUTE. */
uint32_t box_check_way(
    const struct egress *e, enum network_protocol protocol, const struct address *to);
void box_release(struct box *b, unsigned descriptors);

/* Counts a denied attempt at a name: a look-up, or a TLS server name. */
void box_deny_name(struct box *b, enum network_protocol protocol, const char *name,
    uint16_t port, uint32_t reason);

/* Counts bytes that a connection or flow moves. */
void box_count(struct box *b, struct record_ref *ref, enum direction d, uint64_t bytes);

unsigned box_slot(const struct packet_ends *ends);

/* --- channel.c */

enum served channel_serve(struct source *s);
bool channel_read(struct box *b); /* reads messages; false when the channel must be closed */
void channel_hello(struct box *b);
void channel_tried(struct box *b, const struct record_ref *ref);
void channel_record(struct box *b, uint32_t token);
void channel_drop_letters(struct box *b);
bool channel_is_full(const struct box *b); /* messages wait */
void channel_ask(struct box *b, uint64_t token, const struct network_row *row);
void channel_withdraw(struct box *b, uint64_t token);

/* --- tcp.c, relay.c, udp.c, lookup.c */

enum served tcp_serve_reports(struct source *s);
enum served tcp_serve_listener(struct source *s);
enum served tcp_serve_conn(struct source *s);
void tcp_end(struct conn *c, bool is_reset);

/* Whether closing a socket resets the connection. It does until the connection has ended in the
 * normal way: when egress is killed, the peer must not take half of the data for all of it. */
void tcp_set_abrupt(int fd, bool is_abrupt);
void tcp_expire(struct conn *c); /* for a connection whose deadline has passed */

enum served relay_serve(struct conn *c);
void relay_begin(struct conn *c);

enum served udp_serve_listener(struct source *s);
void udp_end(struct flow *f);

void lookup_datagram(
    struct box *b, const struct packet_ends *ends, const uint8_t *data, size_t len);
enum served lookup_serve_conn(struct conn *c);
void lookup_end(struct lookup *l); /* the answer is not wanted any more */
void lookup_end_all(struct box *b);

/* The wait of a held connection or flow is over: it goes on to an address outside, or is
 * refused. */
void tcp_proceed(struct conn *c, const struct address *to);
void tcp_refuse(struct conn *c, uint32_t reason);
void tcp_retry(struct conn *c); /* decides again, as if its SYN came now */
void udp_proceed(struct flow *f, const struct address *to);
void udp_refuse(struct flow *f, uint32_t reason);

/* --- ask.c */

/* Joins the question about a destination, or makes a new question. Sets *ret and returns 0, or
 * returns the reason why no question is asked. The waiting connection or flow
 * calls ask_begin() when it can be called back, and ask_leave() when it ends first. */
uint32_t ask_hold(struct box *b, const struct network_row *what, struct question **ret);
void ask_begin(struct question *q);
void ask_leave(struct question *q);

/* The server's answer. */
void ask_answer(struct box *b, const struct network_answer *answer);

/* After a change of the policy: forgets all answers, and decides again about everything that
 * waits. */
void ask_again(struct box *b);
void ask_free(struct box *b);

/* --- inject.c */

void inject_syn(const struct box *b, const struct packet_syn *syn);
void inject_reset(const struct box *b, const struct packet_syn *syn);
void inject_unreachable_syn(
    const struct box *b, const struct packet_syn *syn, enum packet_unreachable why);
void inject_unreachable_udp(const struct box *b, const struct packet_ends *ends, size_t len,
    enum packet_unreachable why);
void inject_datagram(
    const struct box *b, const struct packet_ends *ends, const void *data, size_t len);

socklen_t sockaddr_make(
    struct sockaddr_storage *ret, const struct address *address, uint16_t port);
bool sockaddr_read(
    const struct sockaddr_storage *from, struct address *ret_address, uint16_t *ret_port);

/* --- secrets.c */

/* The link is owned from now on; -1: there are no secrets. */
int secrets_open(struct egress *e, int link_fd);

/* The secrets of the box that a connection may get, as bits; and the secrets among `secrets`
 * that belong to a host. */
uint32_t secrets_possible(const struct box *b, const struct address *address, uint16_t port);
uint32_t secrets_of_host(const struct egress *e, uint32_t secrets, const char *host);

/* Gives the server's socket to hermes-inject. Returns 0, or a reason; the connection then has
 * to end. */
uint32_t secrets_hand_over(struct conn *c, uint32_t secrets);

/* --- route.c */

int route_open(struct egress *e);

/* 0, REASON_HOST_ADDRESS or REASON_NO_ROUTE. */
uint32_t route_check(const struct egress *e, const struct address *address);
bool route_has_v6(const struct egress *e);

/* --- confine.c */

/* Gives up all capabilities and refuses to go on as root outside a user namespace of its own.
 */
int confine_identity(void);

/* No file, no program, and the few system calls of the loop. */
int confine_rest(void);
