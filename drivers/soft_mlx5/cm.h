/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOFT_MLX5_CM_H
#define SOFT_MLX5_CM_H

/**
 * @file
 * The character device /dev/infiniband/rdma_cm: what the kernel's rdma_ucm does for librdmacm.
 *
 *     write -> cm_dev.c    the descriptor, identifiers, the queue of events, waiting for one
 *              cm_id.c     the commands and their table
 *              cm_route.c  addresses and their devices, answers about paths and queue pairs
 *              cm_wire.c   ports, and messages between processes
 *
 * An identifier that is bound to a port owns a stream socket: on the wire of shared memory a Unix
 * socket whose abstract name is the port, over UDP a TCP socket with that port. bind() reserves the
 * port, listen() and connect() are the same calls on that socket, the messages of a connection pass
 * through it, and its end reports that the peer closed or died.
 *
 * The program's descriptor is an epoll set of these sockets and one timer, so poll() works on it
 * without help. Messages are read when the program asks for an event or disconnects, so no thread
 * is needed.
 *
 * States of an identifier, and what moves it:
 *
 *     IDLE -bind-> BOUND -resolve-> ADDR_RESOLVED -route-> ROUTE_RESOLVED -connect-> REQ_SENT
 *                  BOUND -listen-> LISTENING, which makes identifiers in REQ_AWAITED
 *     REQ_AWAITED -REQ-> REQ_RECEIVED
 *     REQ_SENT -REP-> REP_RECEIVED -accept, sends RTU-> ESTABLISHED
 *     REQ_RECEIVED -accept, sends REP-> REP_SENT -RTU-> ESTABLISHED
 *     ESTABLISHED -disconnect-> DREQ_SENT -DREP-> CLOSED
 *     ESTABLISHED -DREQ-> DREQ_RECEIVED -disconnect-> CLOSED
 *     any of a connection -REJ, end of the socket, timeout-> CLOSED
 *
 * Of type UD (a kernel's SIDR) REP alone ends the exchange: REQ_SENT and REQ_RECEIVED -> CLOSED.
 *
 * One lock, cm_lock, guards everything. Order: cm_lock, drive, files.
 */

#include <netinet/in.h>
#include <pthread.h>
#include <sys/queue.h>
#include <sys/types.h>

#include <rdma/rdma_user_cm.h>

#include "file.h"
#include "object.h"
#include "uverbs.h"

/** AF_IB of linux/socket.h. */
#define CM_AF_IB 27
/** Of datagrams, where the accepting side gives none: as the kernel. */
#define CM_UD_QKEY 0x01234567u
/** 4.096 microseconds times two to this power. */
#define CM_ACK_TIMEOUT 14

/** Private data that InfiniBand's messages have room for, as the events of a kernel report it. */
#define CM_REQ_PRIVATE      56
#define CM_REP_PRIVATE      196
#define CM_REJ_PRIVATE      148
#define CM_DREQ_PRIVATE     220
#define CM_DREP_PRIVATE     224
#define CM_SIDR_REQ_PRIVATE 180
#define CM_SIDR_REP_PRIVATE 136

/** enum rdma_cm_event_type of librdmacm, which the kernel's public header lacks. */
enum cm_event_type {
	CM_EVENT_ADDR_RESOLVED = 0,
	CM_EVENT_ADDR_ERROR = 1,
	CM_EVENT_ROUTE_RESOLVED = 2,
	CM_EVENT_CONNECT_REQUEST = 4,
	CM_EVENT_CONNECT_RESPONSE = 5,
	CM_EVENT_UNREACHABLE = 7,
	CM_EVENT_REJECTED = 8,
	CM_EVENT_ESTABLISHED = 9,
	CM_EVENT_DISCONNECTED = 10,
};

/** Reasons of a REJ message (InfiniBand specification, 12.6.7.2). */
enum cm_reject {
	CM_REJECT_NO_SERVICE = 8,
	CM_REJECT_CONSUMER = 28,
	CM_REJECT_VENDOR_OPTION = 35,
};

/** Status of a SIDR_REP message. */
enum cm_sidr {
	CM_SIDR_UNSUPPORTED = 1,
	CM_SIDR_REJECTED = 2,
};

enum cm_state {
	CM_IDLE,
	CM_BOUND,
	CM_ADDR_RESOLVED,
	CM_ROUTE_RESOLVED,
	CM_LISTENING,
	CM_REQ_AWAITED,
	CM_REQ_SENT, /**< From here on there is or was a connection. */
	CM_REQ_RECEIVED,
	CM_REP_SENT,
	CM_REP_RECEIVED,
	CM_ESTABLISHED,
	CM_DREQ_SENT,
	CM_DREQ_RECEIVED,
	CM_CLOSED,
};

union cm_addr {
	struct sockaddr sa; /**< sa_family 0: none. */
	struct sockaddr_in in;
	struct sockaddr_in6 in6; /**< Its port lies where that of @p in lies. */
};

/** A port as its peer sees it. */
struct cm_end {
	uint8_t gid[16];
	uint16_t lid, mtu; /**< The latter an enum ibv_mtu. */
};

/** A message of a connection. All of them have the same size, so that a stream carries them. */
struct cm_msg {
	uint32_t magic; /**< CM_MAGIC, which also is the version. */
	uint16_t ps;
	uint16_t type;   /**< enum cm_msg_type. */
	uint32_t status; /**< Of REJ the reason; of REP to a request of UD enum cm_sidr. */
	uint32_t psn;
	struct cm_end from;      /**< Of the sender. */
	union cm_addr src, dst;  /**< Of REQ in a Unix socket; one of TCP has them itself. */
	struct rdma_ucm_ece ece;
	struct rdma_ucm_conn_param conn; /**< Private data: zero behind what was given. */
};

/* doc/protocol/soft_mlx5_wire.md, which has all words little endian. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && sizeof(struct cm_msg) == 372 &&
		offsetof(struct cm_msg, from) == 16 && offsetof(struct cm_msg, src) == 36 &&
		offsetof(struct cm_msg, ece) == 92 && offsetof(struct cm_msg, conn) == 100,
	"as documented");

#define CM_MAGIC 0x324d4353u /* "SCM2" */

enum cm_msg_type {
	CM_REQ,
	CM_REP,
	CM_RTU,
	CM_REJ,
	CM_DREQ,
	CM_DREP,
};

/** An event that the program has not read. */
struct cm_event {
	TAILQ_ENTRY(cm_event) link;
	struct cm_id *owner; /**< Counts it as reported. Of a connection request: the listener. */
	struct rdma_ucm_event_resp resp;
};

/** An open descriptor of the character device, with the identifiers made by it. */
struct cm_chan {
	struct sm_file file;
	LIST_ENTRY(cm_chan) link;
	uint64_t serial;
	int timer; /**< Readable while events wait, or at the first deadline. */
	bool dead; /**< Inherited by fork: every command is EIO. */
	TAILQ_HEAD(cm_ids, cm_id) ids;
	struct cm_ids waiting; /**< Those with a deadline. */
	TAILQ_HEAD(cm_events, cm_event) events;
};

struct cm_id {
	struct uv_obj obj;
	TAILQ_ENTRY(cm_id) link, wait;
	struct cm_chan *chan;
	struct cm_id *listener; /**< That made it, until the program has read the request. */
	uint64_t uid;           /**< librdmacm's; 0: not accepted yet, no events. */
	uint32_t events_reported;
	enum cm_state state;
	uint16_t ps;         /**< enum rdma_ucm_port_space. */
	uint8_t qp_type;     /**< enum ibv_qp_type. */
	uint8_t ack_timeout; /**< Local ACK timeout of the queue pair. */
	bool reuse_addr;
	bool named;      /**< The socket has the port's name. */
	bool unsent;     /**< The socket is yet to connect, then @p req is sent. */
	uint8_t msgs;    /**< That were received. */
	int fd;          /**< The socket, or -1. */
	int device;      /**< Of the source address, or -1. */
	struct cm_end peer; /**< By REQ or REP; before, what the destination address says. */
	union cm_addr src, dst;
	struct cm_msg req;
	uint64_t deadline_ns; /**< Of the answer that is expected; 0: none. */
	/* For the attributes of the queue pair. */
	uint32_t psn, peer_psn, peer_qpn;
	uint8_t resources, depth; /**< READs that the peer, and this side, may have outstanding. */
	uint8_t retry, rnr_retry;
};

/** One command: its request, copied, and its answer, zero at first. */
struct cm_call {
	struct cm_id *id; /**< That the request names, if the command is about one. */
	uint32_t room;    /**< Bytes of the answer that the program takes, */
	uint64_t answer;  /**< and where. */
	union uv_bytes req, resp;
};

#define cm_is_ud(id)  ((id)->qp_type == IBV_QPT_UD)
#define cm_port_of(a) ((a)->in.sin_port)

extern pthread_mutex_t cm_lock;

/* ---- cm_dev.c ---- */

/** open() of the node. A descriptor, or -1 with errno. */
int cm_open(int flags);
/** write() of @p len bytes to an epoll set: their number, or -1 with errno; EINVAL: no channel. */
ssize_t cm_write(int fd, const void *buf, size_t len);
/** In a forked child: what it inherited belongs to the parent. */
void cm_fork_child(void);

/** The channel that a file is, or NULL. */
static inline struct cm_chan *
cm_chan_of(struct sm_file *file)
{
	return file != NULL && file->kind == SM_FILE_CM
		? crpc_container_of(file, struct cm_chan, file)
		: NULL;
}

int cm_get_event(struct cm_chan *chan, struct cm_call *call);
int cm_connect(struct cm_chan *chan, struct cm_call *call);
/** A new identifier, or NULL with errno. */
struct cm_id *cm_id_new(struct cm_chan *chan, uint16_t ps, uint8_t qp_type);
/** When an answer is late; 0: none is expected. */
void cm_id_deadline(struct cm_id *id, uint64_t at_ns);
/** Its socket and unread events go, and identifiers of requests that were not read. */
void cm_id_free(struct cm_id *id);
/** Move it, its unread events and their identifiers; 0, or what the channel's set says. */
int cm_id_migrate(struct cm_id *id, struct cm_chan *to);
/** The identifier with this handle that the program knows, of any channel, or NULL. */
struct cm_id *cm_id_find(uint32_t handle);
/**
 * Queue an event; a connection request is one of the listener about the new identifier.
 *
 * @return
 *   The event, to add to; without memory, and of an identifier not accepted yet, one that is lost,
 *   whose id is 0.
 */
struct rdma_ucm_event_resp *cm_event_new(struct cm_id *id, enum cm_event_type type, int status);

/* ---- cm_id.c ---- */

#define CM_NO_ID UINT16_MAX

/** One command of the device. */
struct cm_command {
	const char *name; /* NULL: there is no such command. */
	int (*fn)(struct cm_chan *chan, struct cm_call *call);
	uint16_t req, req_min;   /* Bytes of the request: known ones, and those that must come. */
	uint16_t id_at;          /* Where it has the identifier; CM_NO_ID: nowhere. */
	bool device;             /* Which must have a device. */
	uint16_t response_at;    /* Where it has the address of the answer. */
	uint16_t resp, resp_min; /* Bytes of the answer: at most, and at least; 0: none. */
};

#define CM_COMMANDS (RDMA_USER_CM_CMD_JOIN_MCAST + 1)
extern const struct cm_command cm_commands[CM_COMMANDS];

/* ---- cm_route.c ---- */

/** Bytes of an address of IPv4 or IPv6, 0 of any other. */
uint32_t cm_addr_size(const union cm_addr *addr);
bool cm_addr_is_any(const union cm_addr *addr);
/** Equal but for the port. */
bool cm_addr_equal(const union cm_addr *a, const union cm_addr *b);
/** The device that an address of this host belongs to; -ENODEV: it is not of this host. */
int cm_addr_device(const union cm_addr *addr);
/** The source address of the way to @p dst and what is known of its port; 0, or -errno. */
int cm_addr_route(const union cm_addr *dst, union cm_addr *src, struct cm_end *peer);
/** Of a device of this process. */
struct cm_end cm_end_of(int device);
/** What a peer says of itself could be an end of this wire. */
bool cm_end_is_valid(const struct cm_end *end);
void cm_ah(const struct cm_id *id, struct ib_uverbs_ah_attr *ah);
int cm_query(struct cm_chan *chan, struct cm_call *call);
int cm_init_qp_attr(struct cm_chan *chan, struct cm_call *call);

/* ---- cm_wire.c ---- */

/** Reserve a port, in network order; 0 chooses one. 0, EADDRINUSE, or what socket() said. */
int cm_wire_bind(struct cm_id *id, in_port_t port);
int cm_wire_listen(struct cm_id *id, uint32_t backlog);
/** Connect the socket to the port of the destination and send @p req; else there is an event. */
int cm_wire_connect(struct cm_id *id);
/** Send a message; EPIPE, or what else send() said. */
int cm_wire_send(struct cm_id *id, enum cm_msg_type type, struct cm_msg *msg);
/** The socket has something: messages, a new connection, or its end. */
void cm_wire_ready(struct cm_id *id);
/** Expect an answer within the timeout of the connection manager. */
void cm_wire_expect(struct cm_id *id);
/** The answer did not come; of a listener: there may be descriptors again. */
void cm_wire_expired(struct cm_id *id);
/** Watch the socket by the channel, or no longer. */
int cm_wire_watch(struct cm_id *id, int op);
void cm_wire_close(struct cm_id *id);
/** The same, at the end of an attempt or a connection. */
void cm_wire_end(struct cm_id *id);

#endif
