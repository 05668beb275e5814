/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Networks of boxes. A box that asked for one gets a kit in its network namespace before its
 * program begins (proto/kit.h). The spawner keeps the kit and the network channel while the box
 * lives, gives duplicates of them to hermes-egress (proto/egress.h), and gives them to the next
 * hermes-egress when the last one has died. Copies of a session have its namespace, so they
 * share its kit, which lives as long as one of them. */

#include "proto/kit.h"
#include "proto/spawn.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct spawner;
struct box;

/* Orders to hermes-network that may be unanswered, and messages that hermes-egress may be
 * owed. */
enum { EGRESS_MAX_WAITING = 256, EGRESS_MAX_OWED = 8192 };

/* The network state of the spawner. */
struct egress {
    int source; /* socket on which sockets of hermes-egress come; -1: no box has a network */
    int socket; /* to hermes-egress; -1 while there is none */
    int helper; /* socket to hermes-network, which installs kits; -1 */
    pid_t helper_pid;
    uint64_t boxes;                          /* number of the last box with a network */
    struct box *waiting[EGRESS_MAX_WAITING]; /* boxes whose kits were ordered, in that order;
                                                NULL: it is gone */
    unsigned waiting_count;
    uint64_t asked_ms;              /* since when hermes-network has owed us an answer */
    uint64_t owed[EGRESS_MAX_OWED]; /* numbers of boxes that hermes-egress must still get */
    unsigned owed_count;
    uint64_t told_ms; /* when a message was last sent, or should have been */
};

/* Goes on with a box whose kit was ordered: error is 0, or says why there is no kit. */
typedef void egress_then(struct spawner *s, struct box *box, int error);

/* The network state of a box. */
struct box_egress {
    int channel;        /* the end of its network channel; -1: no network was asked for */
    int fds[KIT_COUNT]; /* the kit, as it is sent on */
    unsigned count;     /* of `fds`; 0: no kit */
    uint64_t number;    /* for hermes-egress; 0: not adopted yet */
    bool is_spoilt;     /* its network namespace has a kit, or a part of one */
    egress_then *then;  /* its kit was ordered; NULL: it was not, or is there */
    struct box *asker;  /* the box whose COMMAND_NETWORK is being followed; NULL: none */
    enum kit_part part; /* the part that failed */
};

void egress_init(struct egress *e);

/* Takes the socket of SPAWN_EGRESS; egress_arrived() when it is readable. */
void egress_expect(struct spawner *s, int socket);
void egress_arrived(struct spawner *s);

/* Tries a kit and names the part that this host lacks. */
void egress_probe(struct spawner *s, struct spawn_reply *reply);

/* For a box of the spawner's own that will have a network: takes a namespace with a kit that
 * was made ahead. Returns the namespace or -1. egress_forget() gives the kit up again. */
int egress_take_ready(struct spawner *s, struct box *box);
void egress_forget(struct box *box);

/* Orders a kit for the namespace of a box, and does not wait. Returns 1 when `then` will be
 * called, or negative errno. The box must not start after a failure; box->egress.part names the
 * part. egress_equip() orders one only for a box that asked for a network and has no kit yet;
 * else it returns 0. */
int egress_install(struct spawner *s, struct box *box, egress_then *then);
int egress_equip(struct spawner *s, struct box *box, egress_then *then);

/* hermes-network has answered. */
void egress_answered(struct spawner *s);

/* Gives up a hermes-network or hermes-egress that hangs. Returns whether to call again soon. */
bool egress_check(struct spawner *s);

/* Gives the box to hermes-egress, if it has a kit. */
void egress_adopt(struct spawner *s, struct box *box);

/* COMMAND_NETWORK: gives a live session a network, and its copies, which have the same
 * namespace. Takes the channel. Tells the result on the socket of `box`. */
void egress_command(struct spawner *s, struct box *box, int *channel);

/* The box is gone. */
void egress_drop(struct spawner *s, struct box *box);
