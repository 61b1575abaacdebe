#!/usr/bin/env python3
"""Randomized model checker of a lock-free, one-sided RDMA key-value protocol.

A schedule is a seeded random interleaving of atomic verbs (READ / WRITE / CAS
of one word or one block) issued by three clients and the partition's server,
with client crashes, broken connections, session expiry, fail-over of the
primary, server restarts, table rebuilds and block reuse.  The history of every
key is checked for linearizability by exhaustive search; in addition replicas
are compared, and a block reached through a live word must never be torn or reused.

usage: python3 protocol_model.py --seeds N [--replicas R] [--mutate NAME] [--list]
                                 [--start S] [--modulus M] [--jobs J] [--show]
                                 [--table] [--rtt] [--fast put,cas]
  --seeds N     seeds to run; each runs once per replica count (1, 2 and 3, or R)
  --mutate NAME plant one named bug (see --list) and stop at the first violation
  --table       run every mutation, print the schedules needed to catch each
  --modulus M   block generations kept in a slot word modulo M (default 2..4 by seed)
  --rtt         print round trips per operation without contention
  --show        print the history and the last verbs of a failing schedule
  --fast LIST   commit on all replicas at once for: put (updates), cas (compare_and_swap), ins (the commit
                of inserts: UNSAFE, kept to show it; a directed schedule breaks it, random ones hardly do)
  HARD=1|reb|ins|alias in the environment: harsher schedules; several rules' breaches show only there

Slot words (tuples here, 64 bits in an implementation); v = generation mod M:
  ('E', id)        empty since the table was built; id is unique to (version, slot)
  ('T', b, v)      tentative insert of block b; invisible to readers
  ('L', b, v, d)   live block b; d = DIRTY: not yet known to be on every backup
  ('F', b, v, d)   freed: a delete of ('L', b, v); clean = an empty slot with identity
  ('D', id)        a freed word being renamed to ('E', id), not yet so on every backup: nobody takes it
  ('Z', word)      word frozen by a rebuild; never changes again
"""
import argparse, multiprocessing, random, sys

NS, INF = 3, float('inf')                 # slots in the window
UNREAD = ('?',)                           # a slot of the second half that was not looked at
MUTATIONS = {
 'no_recheck':        'INSERT does not re-read the window after TENTATIVE',
 'anon_empty':        'DELETE leaves an anonymous EMPTY word (no identity)',
 'dirty_read':        'GET returns a DIRTY value without helping',
 'dirty_absent':      'readers take a DIRTY FREED word as absence without helping',
 'absorb_cached':     'a lost PUT is absorbed though its word came from the cache',
 'absorb_unhelped':   'a lost PUT is absorbed without replicating the winner',
 'absorb_cond':       'a PUT that lost to a compare_and_swap is absorbed',
 'absorb_frozen':     'a CAS lost to word|FROZEN counts as absorbed',
 'cas_fail_unhelped': 'compare_and_swap reports mismatch without replicating the winner',
 'clear_first':       'DIRTY is cleared before the backups are written',
 'early_cas':         'primary CAS is posted together with the backups\' block WRITEs',
 'freeze_skip_t':     'the freezer leaves TENTATIVE slots unfrozen',
 'freeze_t':          'the freezer freezes TENTATIVE in place (as empty) instead of killing it',
 'freeze_dirty':      'the freezer freezes DIRTY words without helping them',
 'dir_primary_first': 'directory published at the primary before the backups have the image',
 'dir_before_image':  'a backup gets the directory before the image',
 'reader_no_frozen':  'readers ignore FROZEN (no directory re-read)',
 'no_dir_refresh':    'directory is not re-read after a reconnect / fail-over',
 'image_varies':      'a restarted rebuild lays the image out differently in the same region',
 'no_epoch':          'retired blocks are reused at once',
 'no_hold':           'a client reports the newest epoch in the middle of its operation',
 'retire_dirty_prev': 'a block named only as prev of a DIRTY word counts as unreferenced',
 'unpin_freed':       'a block named only by FREED words (or prev of a TENTATIVE) counts as unreferenced',
 'cas_any_age':       'a cached word of any age may be used in a CAS',
 'get_any_age':       'a cached word of any age may be used in a GET (all checks on)',
 'get_any_age+stamp': 'VARIANT: the same, but every recycled block is stamped on all replicas',
 'get_any_age+stamp+no_version':   '... and GET ignores the version (weak read order)',
 'get_any_age+stamp+no_checksum':  '... and GET ignores the checksum',
 'get_any_age+stamp+no_key_check': '... and GET does not compare the key',
 'no_version+no_checksum+no_key_check': 'VARIANT: age rule on, cached GET checks nothing but the slot word',
 'region_no_dir':     'an epoch is reported without having re-read the directory after it',
 'expire_no_fence':   'a session is expired without fencing its connections',
 'no_fence':          'reconnect without fencing: the lost verb may land later',
 'blind_cas':         'an in-doubt compare_and_swap is simply retried',
 'blind_put':         'an in-doubt PUT is simply retried',
 'one_step_doubt':    'in doubt, only the current word is looked at (no walk along prev)',
 'walk_past':         'in doubt, the walk along prev goes past the word the operation started from',
 'no_reread':         'a cached word goes into a CAS without re-reading its slot in this operation',
 'doubt_delete_true': 'an in-doubt DELETE that finds FREED(w) reports True',
 'bare_token':        'compare_and_swap compares the slot word only, not the full generation',
 'reuse_t_block':     'an insert whose TENTATIVE was killed retries with the same block',
 'rename_no_grace':   'the sweep renames FREED to EMPTY at first sight',
 'rename_same_id':    'VARIANT: a renamed EMPTY has the same identity every time (the grace period stands)',
 'rename_same_id+rename_no_grace': 'neither identity nor grace',
 'rename_no_dirty':   'the renamed EMPTY may be taken before the backups have it',
 'no_overflow_bit_first': 'the overflow bit is set after the LIVE word',
 'bit_before_reread': 'VARIANT: the overflow bit is set after the TENTATIVE, but before the re-read',
 'reread_half_only':  'an inserter into the first half never re-reads the second',
 'overflow_primary_only': 'the overflow bit is set on the primary only',
 'absorb_expired':    'a lost PUT is absorbed by a FREED word that the expiry of a key may have left',
 'absorb_other_key':  'a lost PUT is absorbed by a word of another key (an expiry may lie between)',
 'expiry_late_clock': 'expiry is compared with a time taken after the READ only',
 'expiry_early_clock': 'expiry is compared with a time taken before the READ only',
 'exists_expired':    'put_if_absent takes an expired key that its re-read finds for an existing one',
 'pia_expired_plain': 'put_if_absent over an expired key is not marked conditional',
}
FAST = set()                              # put, cas, ins
MUTATIONS.update({
 'help_no_write':   'FAST: helper does not WRITE the block on the backups',
 'no_scrub':        'FAST: a loser does not clean its word off the backups',
 'no_repair':       'FAST: no repair of the backups before reclaiming a lost session\'s blocks',
 'fo_no_blocks':    'FAST: fail-over reconciles slots but not the blocks they name',
 'no_bfreeze':      'FAST: a rebuild does not freeze the old tables of the backups',
 'loser_stop':      'FAST: helper stops at an optimistic loser',
 'fast_reuse':      'FAST: a lost block is reused for the retry',
 'no_doubt_scrub':  'FAST: in doubt and lost: word not cleaned off',
 'scrub_resolve':   'FAST: connection lost while cleaning: no second resolve',
})
class Broken(Exception): pass             # the connection broke (or the primary failed)
class Violation(Exception): pass
class Ret:                                # operation returns here; the rest is its tail
    def __init__(s, v): s.v = v

def strip(x): return x[1] if x[0] == 'Z' else x
def clean(x): return (x[0], x[1], x[2], False) if x[0] in 'LF' else x
def dirty(x): return x[0] in 'LF' and x[3]
def isfree(x): return x[0] == 'E' or (x[0] == 'F' and not x[3])
def nop(): return None

class World:
    """Memory of all replicas, and the server's allocator and session table."""
    def __init__(s, rng, nrep, M, nb, mut, regions):
        s.rng, s.M, s.nb, s.mut = rng, M, nb, (mut or '').split('+')
        s.primary, s.backups = 0, list(range(1, nrep))
        s.slots = [[[('E', (1, i)) for i in range(NS)] for _ in range(regions)] for _ in range(nrep)]
        s.dirs = [(1, 0)] * nrep                                     # (version, region)
        s.blk = [[(0, None, None, None, False, True)] * nb for _ in range(nrep)]
        s.gen, s.state, s.rete = [1] * nb, ['free'] * nb, [0] * nb   # free/priv/used/ret
        s.free = list(range(nb)); s.owner = [None] * nb
        s.G, s.reported = 1, {}
        s.region, s.region_e = ['cur'] + ['free'] * (regions - 1), [0] * regions
        s.half = NS                                                  # slots in the window's first half
        s.hdr = [[(1, False)] * regions for _ in range(nrep)]        # (table version, overflow bit)
        s.expiry, s.clock, s.renames = {}, lambda: 0, 0              # value -> last moment of its life
    def alloc(s, sid):
        if not s.free: return None
        b = s.free.pop(-1 if s.rng.random() < .8 else 0)
        s.state[b], s.owner[b] = 'priv', sid
        return b
    def expire(s, sid):                   # the server gives up a session (after fencing it)
        s.reported.pop(sid, None)
        for b in range(s.nb):
            if s.state[b] == 'priv' and s.owner[b] == sid:
                s.state[b] = 'doubt' if FAST and 'no_repair' not in s.mut else 'used'

class Actor:
    """Verbs, and what clients and server share.  A generator yields atomic verbs."""
    def __init__(s, w): s.w, s.rtt = w, 0
    def m(s, name): return name in s.w.mut
    # -- verbs
    def v_slot(s, t, i, r=None):
        w, r = s.w, s.w.primary if r is None else r
        return lambda: w.slots[r][t][i]
    def v_cas(s, r, t, i, a, b):
        w = s.w
        def f():
            cur = w.slots[r][t][i]
            if cur == a: w.slots[r][t][i] = b
            return cur
        f.what = (r, t, i, a)
        return f
    def v_set(s, r, t, i, x):
        def f(): s.w.slots[r][t][i] = x
        return f
    def v_blk(s, b):
        w, p = s.w, s.w.primary
        return lambda: w.blk[p][b]
    def v_dir(s):
        w, p = s.w, s.w.primary
        return lambda: w.dirs[p]
    def v_setdir(s, r, d):
        def f(): s.w.dirs[r] = d
        return f
    def v_write(s, r, b, gen, key, val, prev, cond):   # a block WRITE lands in two pieces
        w = s.w
        def f1():                         # the same bytes over the same bytes change nothing
            o = w.blk[r][b]
            if o != (gen, key, val, prev, cond, True): w.blk[r][b] = (gen, key, o[2], prev, cond, False)
        def f2(): w.blk[r][b] = (gen, key, val, prev, cond, True)
        return [f1, f2]
    def v_hdr(s, t):
        w, p = s.w, s.w.primary
        return lambda: w.hdr[p][t]
    def v_bit(s, r, t, ver):              # CAS; the version in the header refuses a later table
        w = s.w
        def f():
            if w.hdr[r][t] == (ver, False): w.hdr[r][t] = (ver, True)
        return f
    def v_sethdr(s, r, t, h):
        def f(): s.w.hdr[r][t] = h
        return f
    def expired(s, blk, now=None):
        return blk[2] in s.w.expiry and (s.w.clock() if now is None else now) > s.w.expiry[blk[2]]
    # -- posting: one batch is one round trip; its chains interleave in any order
    def chains(s, cs):
        s.rtt += 1
        cs = [list(c) for c in cs]; res = [None] * len(cs)
        while True:
            left = [k for k, c in enumerate(cs) if c]
            if not left: return res
            k = s.w.rng.choice(left)
            res[k] = yield cs[k].pop(0)
    def par(s, verbs): return (yield from s.chains([[v] for v in verbs]))
    def ok(s, x, blk): return blk[5] and blk[0] % s.w.M == x[2]
    # -- replication: anyone may do it, any number of times
    def prev_of(s, x):
        if x[0] == 'F': return ('L', x[1], x[2], False)
        (blk,) = yield from s.par([s.v_blk(x[1])])
        if not s.ok(x, blk): raise Violation('bad-block')
        return blk[3]
    def replicate(s, t, i, x, prev, blk=None):
        if FAST: yield from s.replicate_fast(t, i, x, prev, blk)
        elif s.w.backups: yield from s.par([s.v_cas(r, t, i, prev, clean(x)) for r in s.w.backups])
    def replicate_fast(s, t, i, x, prev, blk):
        want = {r: prev for r in s.w.backups}; n = 0
        while want:
            n += 1
            if n > 50: raise Violation('help-livelock')
            rs = sorted(want)
            res = yield from s.chains([(s.v_write(r, x[1], *blk[:5])
                                        if blk and n == 1 and not s.m('help_no_write') else [])
                                       + [s.v_cas(r, t, i, want[r], clean(x))] for r in rs])
            look = []
            for r, y in zip(rs, res):
                if y in (want[r], clean(x)): del want[r]
                elif y == prev: want[r] = prev
                elif y[0] == 'L' and not s.m('loser_stop'): look.append((r, y))
                else: del want[r]
            if look:
                bl = yield from s.par([(lambda r=r, y=y: s.w.blk[r][y[1]]) for r, y in look])
                for (r, y), k in zip(look, bl):
                    if not s.ok(y, k): raise Violation('bad-backup-block')
                    if k[3] == prev: want[r] = y
                    else: del want[r]
    def clear(s, t, i, x):
        if dirty(x): yield from s.par([s.v_cas(s.w.primary, t, i, x, clean(x))])
    def help(s, t, i, x, prev=None):
        blk = None
        if FAST and x[0] == 'L' and s.w.backups:
            (blk,) = yield from s.par([s.v_blk(x[1])])
            if not s.ok(x, blk): raise Violation('bad-block')
            prev, blk = blk[3], (blk[0], blk[1], blk[2], blk[3], blk[4])
        prev = prev or (yield from s.prev_of(x))
        if s.m('clear_first'): yield from s.clear(t, i, x)
        yield from s.replicate(t, i, x, prev, blk)
        yield from s.clear(t, i, x)

class Client(Actor):
    def __init__(s, w, sid):
        super().__init__(w)
        s.sid, s.cache, s.tokens, s.used = sid, {}, {}, []
        s.dir, s.epoch = w.dirs[w.primary], w.G
        w.reported[sid] = w.G
        s.pool, s.cache_prob, s.broke = [], .7, False
    def set_dir(s, d):
        if d != s.dir: s.dir = d; s.cache.clear()
    def refill(s, n):
        while len(s.pool) < n:
            b = s.w.alloc(s.sid)
            if b is None: return
            s.pool.append(b)
    def take(s):
        s.refill(1)
        if not s.pool: return None
        b = s.pool.pop(0); s.used.append(b); return b
    def word(s, b, kind='L', d=True):
        v = s.w.gen[b] % s.w.M
        return (kind, b, v) if kind == 'T' else (kind, b, v, d and bool(s.w.backups))
    def writes(s, b, key, val, prev, cond):
        return [s.v_write(r, b, s.w.gen[b], key, val, prev, cond) for r in [s.w.primary] + s.w.backups]
    def young(s, at, mut):                # could the word's block have come round M times since?
        return s.epoch - at < s.w.M or s.m(mut)
    def remember(s, key, i, w): s.cache[key] = (i, clean(w), s.epoch)
    # -- between operations: epoch first, then directory, then the report
    def heartbeat(s):
        try:
            w = s.w
            (g,) = yield from s.par([lambda: w.G])
            if not s.m('region_no_dir'):
                (d,) = yield from s.par([s.v_dir()]); s.set_dir(d)
            s.epoch = g
            def rep(): w.reported[s.sid] = g
            yield rep
        except Broken: yield from s.reconnect()
    def reconnect(s):                     # the server fences the old connection everywhere first
        s.broke = True
        while True:
            try:
                yield nop
                if not s.m('no_dir_refresh'):
                    (d,) = yield from s.par([s.v_dir()]); s.set_dir(d)
                return
            except Broken: pass
    # -- reading
    def window(s, tent=False, own=None, both=False):
        """Slots, then the blocks they name.  None: the table was replaced, start again.
        The second half of the window is looked at only when the overflow bit is set."""
        t, h, s.now0 = s.dir[1], s.w.half, s.w.clock()
        *win, hdr = yield from s.par([s.v_slot(t, i) for i in range(h)] + [s.v_hdr(t)])
        if h < NS and (hdr[1] or both) and not (own is not None and own < h and s.m('reread_half_only')):
            win += yield from s.par([s.v_slot(t, i) for i in range(h, NS)])
        win += [UNREAD] * (NS - len(win))
        idx = [i for i, x in enumerate(map(strip, win))
               if x[0] == 'L' or dirty(x) or (tent and x[0] == 'T' and i != own)]
        blks = dict(zip(idx, (yield from s.par([s.v_blk(strip(win[i])[1]) for i in idx])) if idx else []))
        if any(x[0] == 'Z' for x in win) and not s.m('reader_no_frozen'):
            (d,) = yield from s.par([s.v_dir()])
            if d != s.dir: s.set_dir(d); return None
        for i in idx:
            if not s.ok(strip(win[i]), blks[i]): raise Violation('bad-block')
        return t, win, blks
    def find(s, key, read=False):
        """-> (t, i, word, frozen, block, win); i None if absent.  The word is clean."""
        while True:
            r = yield from s.window()
            if r is None: continue
            t, win, blks = r
            bare = [strip(x) for x in win]
            gone = [i for i in blks if bare[i][0] == 'F' and blks[i][1] == key]
            if gone and not s.m('dirty_absent'):
                for i in gone: yield from s.help(t, i, bare[i])
                continue
            for i in blks:
                x = bare[i]
                if x[0] == 'L' and blks[i][1] == key:
                    if dirty(x) and not (read and s.m('dirty_read')): yield from s.help(t, i, x, blks[i][3])
                    return t, i, clean(x), win[i][0] == 'Z', blks[i], win
            return t, None, None, False, None, win
    def dead(s, blk):
        """Absent by its expiry?  Yes only if it was over before the slot was read, no only if it is
        not over after that; None in between: read again."""
        early, late = s.expired(blk, s.now0), s.expired(blk)
        if s.m('expiry_late_clock'): early = late
        if s.m('expiry_early_clock'): late = early
        return early if early == late else None
    def get(s, key):
        while True:
            try:
                i, w, at = s.cache.get(key, (None, None, 0))
                s.now0 = s.w.clock()
                if w and s.young(at, 'get_any_age') and s.w.rng.random() < s.cache_prob:
                    # both reads posted together, in any order
                    x, blk = yield from s.par([s.v_slot(s.dir[1], i), s.v_blk(w[1])])
                    if x == w and (blk[0] % s.w.M == w[2] or s.m('no_version')) \
                       and (blk[1] == key or s.m('no_key_check')) and (blk[5] or s.m('no_checksum')):
                        d = s.dead(blk)
                        if d: return None
                        if d is None: continue
                        s.remember(key, i, w); s.tokens[key] = (w[1], blk[0], blk[2])
                        return blk[2]
                    s.cache.pop(key, None)
                t, i, w, _, blk, _ = yield from s.find(key, read=True)
                if i is None: return None
                d = s.dead(blk)
                if d: return None
                if d is None: continue
                s.remember(key, i, w); s.tokens[key] = (w[1], blk[0], blk[2])
                return blk[2]
            except Broken: yield from s.reconnect()
    # -- one CAS that publishes a block (or frees one), with its replication
    def resolve(s, t, i, old, new, prev):
        """After a broken connection: did CAS(old -> new) execute?  Walk back along prev, but
        not beyond the word this operation started from: older blocks may have been reused."""
        (cur,) = yield from s.par([s.v_slot(t, i)])
        x, seen, target = clean(strip(cur)), [], clean(new)
        while True:
            if x == target:
                if new[0] == 'F' and not s.m('doubt_delete_true'): return 'doubt', cur
                return 'won', cur
            if x == clean(old) or (x == prev and not s.m('walk_past')) or x[0] in 'ED' or x in seen:
                return 'lost', cur
            if s.m('one_step_doubt'): return 'lost', cur
            seen.append(x)
            if x[0] == 'F': x = ('L', x[1], x[2], False); continue
            (blk,) = yield from s.par([s.v_blk(x[1])])
            if not s.ok(x, blk): return 'lost', cur   # older than this operation
            x = clean(blk[3])
    def publish(s, t, i, old, new, prev, blind=False, pre=None):
        """-> ('won', word to clear or None) | ('lost', current) | ('doubt', current)"""
        try:
            if pre: cur = (yield from s.chains([pre[0] + [s.v_cas(s.w.primary, t, i, old, new)]] + pre[1:]))[0]
            else: (cur,) = yield from s.par([s.v_cas(s.w.primary, t, i, old, new)])
            if cur != old: return 'lost', cur
            if s.m('clear_first'): yield from s.clear(t, i, new)
            yield from s.replicate(t, i, new, prev)
            return 'won', new
        except Broken: pass
        while True:
            try:
                yield from s.reconnect()
                if blind: return 'lost', old
                st, cur = yield from s.resolve(t, i, old, new, prev)
                if st != 'won': return st, cur
                if cur != new or not dirty(new): return 'won', None
                yield from s.replicate(t, i, new, prev)
                return 'won', new
            except Broken: pass
    def scrub(s, t, i, cur, new, prev):   # the loser leaves no trace on the backups
        x = strip(cur)
        if dirty(x): yield from s.help(t, i, x)
        if s.w.backups and not s.m('no_scrub'):
            yield from s.par([s.v_cas(r, t, i, clean(new), prev) for r in s.w.backups])
    def publish_fast(s, t, i, old, new, prev, wr):
        lost = None
        try:
            bk = list(s.w.backups)
            res = yield from s.chains([wr[0] + [s.v_cas(s.w.primary, t, i, old, new)]] +
                                      [wr[k + 1] + [s.v_cas(r, t, i, prev, clean(new))] for k, r in enumerate(bk)])
            if res[0] == old:
                if any(y not in (prev, clean(new)) for y in res[1:]): yield from s.replicate(t, i, new, prev)
                return 'won', new
            lost = res[0]
            yield from s.scrub(t, i, lost, new, prev)
            return 'lost', lost
        except Broken: pass
        while True:
            try:
                yield from s.reconnect()
                if lost and s.m('scrub_resolve'): return 'lost', lost
                st, cur = yield from s.resolve(t, i, old, new, prev)
                if st != 'won':
                    if not s.m('no_doubt_scrub'): yield from s.scrub(t, i, cur, new, prev)
                    return st, cur
                if cur != new or not dirty(new): return 'won', None
                yield from s.help(t, i, new)
                return 'won', None
            except Broken: pass
    def done(s, res, t, i, x):            # return, then clear DIRTY off the critical path
        yield Ret(res)
        try:
            if x: yield from s.clear(t, i, x)
        except Broken: yield from s.reconnect()
    def absorbed(s, key, t, i, w, cur):
        """CAS(w -> ..) of a PUT lost to cur; w was read in this operation."""
        x = strip(cur)
        if clean(x) == w: return s.m('absorb_frozen') and cur[0] == 'Z'
        if x[0] not in 'LF': return s.m('absorb_other_key')
        (blk,) = yield from s.par([s.v_blk(x[1])])
        if not s.ok(x, blk): raise Violation('bad-block')
        if dirty(x) and not s.m('absorb_unhelped'): yield from s.help(t, i, x, blk[3] if x[0] == 'L' else None)
        if blk[1] != key: return s.m('absorb_other_key')
        if x[0] == 'L': return not blk[4] or s.m('absorb_cond')
        return blk[2] not in s.w.expiry or s.m('absorb_expired')   # a remove, or the sweep of an expired key?
    def put(s, key, val):
        b, tries = s.take(), 0
        if b is None: return 'full'
        use = s.w.rng.random() < s.cache_prob
        while True:
            tries += 1
            if tries > 40: return 'full'
            try:
                seen = True               # was the word read from its slot in this operation?
                e = s.cache.pop(key, None)
                if use and e and tries == 1 and s.young(e[2], 'cas_any_age'):
                    t, i, w = s.dir[1], e[0], e[1]
                    wr, pre = s.writes(b, key, val, w, False), None
                    if 'put' in FAST: seen = False
                    elif s.m('early_cas'): pre, seen = wr, False
                    elif s.m('absorb_cached') or s.m('no_reread'):
                        yield from s.chains(wr); seen = s.m('absorb_cached')
                    else:                 # re-read the slot along with the block WRITEs
                        x = (yield from s.chains(wr + [[s.v_slot(t, i)]]))[-1]
                        if x != w: continue
                else:
                    t, i, w, frozen, _, win = yield from s.find(key)
                    if frozen: yield nop; continue
                    if i is None:
                        r = yield from s.insert(t, b, key, val, False, win, tries)
                        if r is None: return 'full'
                        if r[0] == 'done': yield from s.done('ok', t, *r[1:]); return
                        if not s.m('reuse_t_block'): b = s.take()
                        if b is None: return 'full'
                        continue
                    wr, pre = s.writes(b, key, val, w, False), None
                    if 'put' in FAST: pass
                    elif s.m('early_cas'): pre = wr
                    else: yield from s.chains(wr)
                new = s.word(b)
                if 'put' in FAST: st, cur = yield from s.publish_fast(t, i, w, new, w, wr)
                else: st, cur = yield from s.publish(t, i, w, new, w, s.m('blind_put'), pre)
                if st == 'won':
                    s.keep(key, t, i, b, val)
                    yield from s.done('ok', t, i, cur); return
                if seen and (yield from s.absorbed(key, t, i, w, cur)): return 'ok'
                if 'put' in FAST and not s.m('fast_reuse'):
                    b = s.take()
                    if b is None: return 'full'
            except Broken:                # nothing of ours is live; but a TENTATIVE may be left
                yield from s.reconnect(); b = s.take()
                if b is None: return 'full'
    def keep(s, key, t, i, b, val):
        if s.dir[1] == t: s.remember(key, i, s.word(b))
        s.tokens[key] = (b, s.w.gen[b], val)
    def insert(s, t, b, key, val, cond, win, tries):
        """-> ('done', i, word) | ('again',) | ('exists',) | None when the window is full.
        After anything but 'done' block b may have been visible: take a fresh one."""
        p = s.w.primary
        e, h = next((j for j, x in enumerate(win) if isfree(x)), None), s.w.half
        if e is None and UNREAD in win:   # whose key may be there is seen after the TENTATIVE
            win = win[:h] + (yield from s.par([s.v_slot(t, j) for j in range(h, NS)]))
            e = next((j for j, x in enumerate(win) if isfree(x)), None)
        if e is None:
            if tries > 20: return None
            yield nop
            if tries > 4:                 # clear away stale tentatives
                r = yield from s.window(tent=True, both=True)
                for j in (r[2] if r else ()):
                    if r[1][j][0] == 'T': yield from s.par([s.v_cas(p, t, j, r[1][j], r[2][j][3])])
            return ('again',)
        E, T = win[e], s.word(b, 'T')
        wr = s.writes(b, key, val, E, cond)
        bit = [[s.v_bit(r, t, s.dir[0])] if e >= h and (r == p or not s.m('overflow_primary_only')) else []
               for r in [p] + s.w.backups]
        late = None
        if s.m('no_overflow_bit_first') or s.m('bit_before_reread'): late, bit = bit, [[]] * len(bit)
        cur = (yield from s.chains([wr[0] + bit[0] + [s.v_cas(p, t, e, E, T)]] +
                                   [a + b for a, b in zip(wr[1:], bit[1:])]))[0]
        if cur != E: return ('again',)
        if s.m('bit_before_reread'): yield from s.chains(late)
        while not s.m('no_recheck'):
            r = yield from s.window(tent=True, own=e, both=e >= h)
            if r is None: return ('again',)
            _, win, blks = r
            if win[e] != T: return ('again',)             # killed (or frozen away)
            same = [(j, strip(win[j])) for j in blks if j != e and blks[j][1] == key]
            gone = [(j, x) for j, x in same if x[0] == 'F']
            if gone and not s.m('dirty_absent'):
                for j, x in gone: yield from s.help(t, j, x)
                continue
            live = [(j, x) for j, x in same if x[0] == 'L']
            low = [(j, x) for j, x in same if win[j][0] == 'T' and j < e]
            high = [(j, x) for j, x in same if win[j][0] == 'T' and j > e]
            if live or (low and tries <= 4):
                yield from s.par([s.v_cas(p, t, e, T, E)])
                for j, x in live:
                    if dirty(x): yield from s.help(t, j, x, blks[j][3])
                return ('exists',) if live and not any(s.dead(blks[j]) is not False for j, x in live) or \
                    live and s.m('exists_expired') else ('again',)
            if not low + high: break
            yield from s.par([s.v_cas(p, t, j, win[j], blks[j][3]) for j, x in low + high])
        if 'ins' in FAST: st, cur = yield from s.publish_fast(t, e, T, s.word(b), E, [[]] * (1 + len(s.w.backups)))
        else: st, cur = yield from s.publish(t, e, T, s.word(b), E, s.m('blind_put'))
        if s.m('no_overflow_bit_first'): yield from s.chains(late)
        if st == 'won': s.keep(key, t, e, b, val); return ('done', e, cur)
        return ('again',)
    def pia(s, key, val):                 # put_if_absent -> True (stored) / False (exists)
        b, tries = s.take(), 0
        while b is not None and tries < 40:
            tries += 1
            try:
                t, i, w, frozen, blk, win = yield from s.find(key)
                d = i is not None and s.dead(blk)
                if i is not None and d is False: return False
                if frozen or d is None: yield nop; continue
                if d:                     # over an expired key: a conditional update
                    wr = s.writes(b, key, val, w, not s.m('pia_expired_plain'))
                    if 'cas' in FAST: st, cur = yield from s.publish_fast(t, i, w, s.word(b), w, wr)
                    else:
                        yield from s.chains(wr)
                        st, cur = yield from s.publish(t, i, w, s.word(b), w, s.m('blind_cas'))
                    if st == 'won':
                        s.keep(key, t, i, b, val)
                        yield from s.done(True, t, i, cur); return
                    b = s.take(); continue
                r = yield from s.insert(t, b, key, val, True, win, tries)
                if r is None: return 'full'
                if r[0] == 'done': yield from s.done(True, t, *r[1:]); return
                if r[0] == 'exists': return False
                if not s.m('reuse_t_block'): b = s.take()
            except Broken: yield from s.reconnect(); b = s.take()
        return 'full'
    def cas(s, key, val, token):          # token = (block, full generation): the version
        b = s.take()
        if b is None: return 'full'
        while True:
            try:
                t, i, w, frozen, blk, _ = yield from s.find(key)
                if i is None or w[1] != token[0]: return False
                if (blk[0] != token[1] if not s.m('bare_token') else blk[0] % s.w.M != token[1] % s.w.M):
                    return False
                d = s.dead(blk)
                if d: return False
                if frozen or d is None: yield nop; continue
                if 'cas' in FAST:
                    wr = s.writes(b, key, val, w, True)
                    st, cur = yield from s.publish_fast(t, i, w, s.word(b), w, wr)
                else:
                    yield from s.chains(s.writes(b, key, val, w, True))
                    st, cur = yield from s.publish(t, i, w, s.word(b), w, s.m('blind_cas'))
                if st == 'won':
                    s.keep(key, t, i, b, val)
                    yield from s.done(True, t, i, cur); return
                x = strip(cur)
                if clean(x) == w:                         # frozen, or not executed
                    if 'cas' in FAST:
                        b = s.take()
                        if b is None: return 'full'
                    continue
                if dirty(x) and not s.m('cas_fail_unhelped'): yield from s.help(t, i, x)
                return False
            except Broken:
                yield from s.reconnect()
                if 'cas' in FAST:
                    b = s.take()
                    if b is None: return 'full'
    def delete(s, key):
        s.cache.pop(key, None)
        while True:
            try:
                t, i, w, frozen, blk, _ = yield from s.find(key)
                if i is None: return False
                d = s.dead(blk)
                if d: return False
                if frozen or d is None: yield nop; continue
                new = ('F', w[1], w[2], bool(s.w.backups))
                if s.m('anon_empty'): new = ('F', 0, 0, False) if not s.w.backups else ('F', w[1], w[2], True)
                st, cur = yield from s.publish(t, i, w, new, w)
                if st == 'doubt': return 'IN_DOUBT'
                if st == 'won':
                    if s.m('anon_empty') and cur and s.w.backups:   # ... and cleans up to nothing
                        yield from s.par([s.v_cas(r, t, i, clean(new), ('F', 0, 0, False)) for r in s.w.backups])
                        yield from s.par([s.v_cas(s.w.primary, t, i, new, ('F', 0, 0, False))])
                        return True
                    yield from s.done(True, t, i, cur); return
            except Broken: yield from s.reconnect()

class Server(Actor):
    """The agent of the partition: rebuilds tables and recycles blocks, one thing at a time."""
    splits = 0
    def __init__(s, w): super().__init__(w); s.seen = {}
    def expire_key(s, t, i, x):           # as a remove, by the server
        f = ('F', x[1], x[2], bool(s.w.backups))
        (cur,) = yield from s.par([s.v_cas(s.w.primary, t, i, x, f)])
        if cur == x and s.w.backups: yield from s.help(t, i, f)
    def grace_over(s, t, i, x):
        """Has every session reported an epoch later than that in which the sweep first saw FREED word x?"""
        first = s.seen.setdefault((t, i, x), s.w.G)
        return s.m('rename_no_grace') or min(list(s.w.reported.values()) + [s.w.G]) > first
    def rename(s, t, i, x):
        w = s.w; w.renames += 1
        e = ('E', ('same', i) if s.m('rename_same_id') else ('renamed', w.renames))
        d = ('D', e[1]) if w.backups and not s.m('rename_no_dirty') else e
        (cur,) = yield from s.par([s.v_cas(w.primary, t, i, x, d)])
        if cur == x: yield from s.finish_rename(t, i, d)
    def finish_rename(s, t, i, d):        # while D stands nobody else changes this slot on a backup
        e = ('E', d[1])
        for r in s.w.backups:
            while True:
                y = yield s.v_slot(t, i, r)
                if y == e or (yield s.v_cas(r, t, i, y, e)) == y: break
                if d == e: break
        if d != e: yield from s.par([s.v_cas(s.w.primary, t, i, d, e)])
    def run(s):
        while True:
            if s.splits and s.w.rng.random() < .3: yield from s.rebuild()
            else: yield from s.reclaim()
            for _ in range(s.w.rng.randint(0, 6)): yield nop
    def kill_t(s, t, i, x):
        prev = yield from s.prev_of(x)
        yield from s.par([s.v_cas(s.w.primary, t, i, x, prev)])
    def repair(s, t):                     # words of lost sessions are taken off the backups
        w = s.w; D = [b for b in range(w.nb) if w.state[b] == 'doubt']
        for i in range(NS):
            while True:
                raw = yield s.v_slot(t, i); x = strip(raw)
                if dirty(raw): yield from s.help(t, i, x); continue
                if x[0] == 'T':
                    if w.state[x[1]] != 'priv': yield from s.kill_t(t, i, x); continue
                    x = yield from s.prev_of(x)
                break
            for r in w.backups:
                y = yield s.v_slot(t, i, r)
                if y[0] == 'L' and y[1] in D and y != x:
                    k = yield (lambda: w.blk[r][y[1]])
                    if k[3] == x or True: yield s.v_cas(r, t, i, y, clean(k[3]))
        def fin():
            for b in D: w.state[b] = 'used'
        yield fin
    def reclaim(s):
        w = s.w; t = w.dirs[w.primary][1]
        if FAST and 'doubt' in w.state: yield from s.repair(t)
        cand = [b for b in range(w.nb) if w.state[b] == 'used']     # before the scan
        ref, waiting, kept = [], [], {}
        for i in range(NS):
            while True:
                raw = yield s.v_slot(t, i)
                x = strip(raw)
                if dirty(raw) and not s.m('retire_dirty_prev'): yield from s.help(t, i, x)
                elif raw[0] == 'T' and w.state[x[1]] != 'priv': yield from s.kill_t(t, i, x)   # owner is done
                elif raw[0] == 'D': yield from s.finish_rename(t, i, raw)
                elif raw[0] == 'F' and not dirty(raw) and s.grace_over(t, i, x): yield from s.rename(t, i, x)
                elif raw[0] == 'L' and not dirty(raw) and s.expired((yield s.v_blk(x[1]))):
                    yield from s.expire_key(t, i, x)
                else: break
            if raw[0] == 'F': waiting.append(x); kept[t, i, x] = s.seen.get((t, i, x), w.G)
            if x[0] in 'LT' or (x[0] == 'F' and not s.m('unpin_freed')): ref.append(x[1])
            if x[0] == 'T':
                prev = yield from s.prev_of(x)
                if prev[0] == 'F' and not s.m('unpin_freed'): ref.append(prev[1])
        def retire():
            out = [b for b in cand if b not in ref and w.state[b] == 'used']
            for b in out: w.state[b], w.rete[b] = 'ret', w.G
            if out or waiting: w.G += 1
            s.seen = kept
            low = min(list(w.reported.values()) + [w.G])
            for b in range(w.nb):
                if w.state[b] == 'ret' and (w.rete[b] < low or s.m('no_epoch')):
                    w.state[b] = 'free'; w.gen[b] += 1; w.free.append(b)
                    if s.m('stamp'):
                        for r in range(len(w.blk)): w.blk[r][b] = (w.gen[b],) + w.blk[r][b][1:5] + (False,)
            for r in range(len(w.region)):
                if w.region[r] == 'ret' and w.region_e[r] < low: w.region[r] = 'free'
        yield retire
    def rebuild(s):
        w, p = s.w, s.w.primary
        ver, t = w.dirs[p]
        nt = next((r for r in range(len(w.region)) if w.region[r] == 'free'), None)
        if nt is None: yield from s.reclaim(); return
        frozen = [None] * NS
        for i in range(NS):
            while True:
                x = yield s.v_slot(t, i)
                if x[0] == 'Z': break
                if dirty(x) and not s.m('freeze_dirty'): yield from s.help(t, i, x); continue
                if x[0] == 'T':
                    if s.m('freeze_skip_t'): break
                    if not s.m('freeze_t'): yield from s.kill_t(t, i, x); continue
                if x[0] == 'D': yield from s.finish_rename(t, i, x); continue
                if (yield s.v_cas(p, t, i, x, ('Z', x))) == x: x = ('Z', x); break
            frozen[i] = clean(strip(x))
            if FAST and not s.m('no_bfreeze'):
                for r in w.backups:
                    while True:
                        y = yield s.v_slot(t, i, r)
                        if y[0] == 'Z' or (yield s.v_cas(r, t, i, y, ('Z', frozen[i]))) == y: break
        # the image is a function of the frozen table and the version only: a restart repeats it
        perm = random.Random(w.rng.random() if s.m('image_varies') else ver).sample(range(NS), NS)
        image = [('E', (ver + 1, i)) for i in range(NS)]
        for i, x in enumerate(frozen):
            if x[0] == 'L': image[perm[i]] = x
        def copy(r):
            d = [s.v_setdir(r, (ver + 1, nt))]
            ws = [s.v_set(r, nt, i, image[i]) for i in range(NS)]
            ws.append(s.v_sethdr(r, nt, (ver + 1, any(x[0] == 'L' for x in image[w.half:]))))
            return d + ws if s.m('dir_before_image') and r != p else ws + d
        order = list(w.backups) + [p]
        if s.m('dir_primary_first'): order.reverse()
        for r in order:
            for v in copy(r)[:-1]: yield v
            last = copy(r)[-1]
            if r == p:
                def publish(): last(); s.note_published(t, nt)
                yield publish
            else: yield last
    def note_published(s, t, nt):
        w = s.w
        w.region[nt] = 'cur'; w.region[t] = 'ret'; w.region_e[t] = w.G; w.G += 1
        s.splits -= 1

def linearizable(h, expiry={}, end=0):
    """h: list of (inv, ret, op, arg, result, optional).  Exhaustive with memo.
    The end of a value's life is an event of its own; a state ('x', value) is absent for everyone but a
    compare_and_swap that expects the value: that may succeed or not."""
    new = lambda op, arg: arg[0] if op == 'cas' else arg
    h = h + [(expiry[v] + .5, expiry[v] + .5, 'exp', v, None, False)
             for v in sorted(new(x[2], x[3]) for x in h if x[2] in ('put', 'pia', 'cas')) if expiry.get(v, end) < end]
    over = {x[3]: i for i, x in enumerate(h) if x[2] == 'exp'}
    n, seen = len(h), set()
    full = sum(1 << i for i in range(n) if h[i][1] < INF)
    def step(op, arg, res, st, free, mask):   # -> new state or False
        bare = None if isinstance(st, tuple) else st
        if op == 'exp': return ('x', arg) if st == arg else st
        if op == 'get': return st if free or res == bare else False
        if res == 'full': return st
        if op == 'del':
            if not free and res != (bare is not None): return False
            return None if bare is not None or free else st
        v = new(op, arg)
        if v in over and mask >> over[v] & 1: v = ('x', v)
        if op == 'put': return v
        if op == 'cas' and st == ('x', arg[1]): return v if free or res else st
        hit = bare is None if op == 'pia' else st == arg[1]
        if not free and res != hit: return False
        return v if hit else st
    def rec(mask, st):
        if mask & full == full: return True
        if (mask, st) in seen: return False
        seen.add((mask, st))
        minret = min(h[i][1] for i in range(n) if not mask >> i & 1)
        for i in range(n):
            if mask >> i & 1 or h[i][0] > minret: continue
            inv, ret, op, arg, res, opt = h[i]
            ns = step(op, arg, res, st, opt, mask)
            if ns is not False and rec(mask | 1 << i, ns): return True
            if opt and ret < INF and rec(mask | 1 << i, st): return True
        return False
    return rec(0, None)

class Run:
    """One random schedule."""
    def __init__(s, seed, nrep, mut=None, M=None):
        s.rng = rng = random.Random(seed * 8 + nrep)
        on, pick = lambda p=.5: rng.random() < p, lambda *a: rng.choice(a)
        s.w = World(rng, nrep, M or pick(2, 2, 3, 4), rng.randint(6, 12), mut, pick(2, 3))
        s.p_break, s.p_crash = (.02 if on() else 0), (.004 if on(.4) else 0)
        s.p_expire, s.p_restart = (.002 if on(.3) else 0), (.02 if on(.3) else 0)
        s.p_failover = pick(.002, .005, .02) if on(.6) else 0
        s.evil = pick(1, 1, 10, 40)       # how much trouble prefers the worst moments
        s.p_stall, cp = (pick(.02, .05) if on(.7) else 0), pick(.3, .7, .95)
        s.stall_cas, s.stall_max = min(.5, s.p_stall * s.evil), 200
        splits, srv_w = (rng.randint(1, 4) if on() else 0), pick(.2, .6, 1.5)
        s.keys, s.kw = ['a', 'b', 'c'], pick([8, 1, 0], [6, 3, 1], [1, 1, 1])
        s.mix = pick(['put', 'get'], ['put', 'put', 'get', 'get', 'del', 'pia', 'cas'],
                     ['put', 'get', 'cas', 'cas'], ['put', 'del', 'get', 'pia'], ['put', 'put', 'del', 'get'])
        longer, hb, profile = pick(1, 1, 2), (.3, .5, .9), seed % 4
        if profile == 1:                  # fail-over in the middle of a replication
            s.p_failover, s.evil, s.p_stall, s.kw = .0005, pick(20, 60, 120), pick(.002, .01), [8, 1, 0]
            splits, srv_w, s.stall_cas = (splits if on(.3) else 0), pick(.05, .2), pick(.2, .5)
            s.mix = pick(['put', 'get'], ['cas', 'cas', 'put', 'get'],
                         ['put', 'del', 'get', 'get'], ['put', 'pia', 'del'])
        if profile == 2:                  # blocks come round quickly, some clients look rarely
            s.w = World(rng, nrep, M or 2, rng.randint(5, 8), mut, 2)
            s.p_break = s.p_crash = s.p_expire = 0
            s.p_failover, s.p_stall, s.evil, srv_w = pick(0, 0, .002), pick(.01, .03, .08), pick(1, 20), pick(1, 2)
            longer, hb, splits, s.stall_max = 3, (.3, .5, .8, .9), splits if on(.1) else 0, 60
            s.kw = pick([1, 0, 0], [8, 1, 0], [2, 1, 0])
            s.mix = pick(['put', 'get'], ['put', 'get'], ['put', 'put', 'get', 'del', 'cas'], ['put', 'get', 'cas'])
        if profile == 3:                  # rebuilds, region reuse, restarts and fail-over in a rebuild
            splits, srv_w, s.p_restart = rng.randint(3, 8), pick(.6, 1.5, 3), pick(0, .02, .1)
            s.p_failover, s.evil, hb = pick(0, .001), pick(1, 20, 60), (.3, .5, .9)
        import os
        hard = os.environ.get('HARD')
        if hard:
            s.w = World(rng, nrep, M or 3, rng.randint(12, 24), mut, 3)
            s.p_break, s.p_crash, s.p_expire = pick(.02, .06, .1), pick(0, .004), pick(0, .004)
            s.p_stall, s.evil = pick(.02, .1, .2), pick(1, 20)
            s.p_failover, s.stall_cas, s.stall_max = pick(.002, .006, .02), pick(.1, .4), pick(30, 100)
            srv_w, cp = pick(.2, 1), pick(.3, .9)
            s.kw, splits, longer, hb = pick([1, 0, 0], [8, 1, 0]), (rng.randint(0, 2) if on(.3) else 0), 2, (.1, .3)
            s.mix = pick(['put', 'get'], ['put', 'put', 'get'], ['put', 'get', 'del'], ['put', 'get', 'cas'])
            if hard == 'alias':
                s.w = World(rng, nrep, M or 2, rng.randint(5, 8), mut, 2)
                s.p_break, s.p_crash, s.p_expire, s.p_stall = pick(.02, .06), 0, 0, pick(.01, .03)
                s.evil, s.kw, splits = 1, [1, 0, 0], 0
                s.p_failover, srv_w, hb, cp, longer = 0 if on() else .001, pick(1, 2), (.3, .5, .8, .9), .95, 4
                s.mix = pick(['put', 'get'], ['put'], ['put', 'put', 'get', 'del'])
            if hard == 'reb': splits, srv_w, s.p_restart = rng.randint(3, 8), pick(1, 3), pick(0, .05)
            if hard == 'ins':
                s.kw = pick([1, 1, 0], [2, 1, 1], [1, 0, 0])
                s.mix = pick(['put', 'del'], ['pia', 'del', 'get'], ['put', 'del', 'pia', 'get', 'get'])
                s.p_break = pick(0, .02)
        more = random.Random(seed * 8 + nrep + (1 << 40))
        s.w.half = more.choice([NS, 1, 1, 2])
        s.p_expiry, s.life = more.choice([0, 0, .3, .8]), more.choice([2, 5, 12])
        s.w.clock = lambda: s.t
        s.server = Server(s.w); s.server.splits = splits
        s.sgen, s.ssend, s.srv_w, s.restarts = None, None, srv_w, 0
        s.hist, s.t, s.vid, s.zombies, s.steps, s.sid = {k: [] for k in s.keys}, 0, 0, [], 0, 0
        s.cl = []
        for c in range(3):
            s.cl.append(dict(gen=None, op=None, left=rng.randint(3, 8) * longer, speed=.3 + rng.random(),
                             stall=0, cp=cp,
                             hb=rng.choice(hb)))
            s.session(s.cl[-1])
    def session(s, c):
        s.sid += 1
        c['c'] = Client(s.w, s.sid); c['c'].cache_prob = c['cp']; c['gen'] = None; c['op'] = None; c['brk'] = False
    def record(s, c, res):                # the response (or, for a lost client, its absence)
        if c['op'] is None: return
        k, inv, op, arg = c['op']; c['op'] = None; s.t += 1
        opt = res == 'IN_DOUBT'
        s.hist[k].append((inv, s.t if res != 'LOST' else INF, op, arg, res, opt or res == 'LOST'))
    def finish(s, c):                     # blocks of a finished operation belong to the server again
        for b in c['c'].used:
            if s.w.state[b] == 'priv' and s.w.owner[b] == c['c'].sid: s.w.state[b] = 'used'
        c['c'].used = []; c['gen'] = None
        if c['left'] <= 0: s.w.expire(c['c'].sid)         # session closed
    def start(s, c):
        cl, rng = c['c'], s.rng
        if rng.random() < c['hb'] or (not cl.pool and not s.w.free):
            c['gen'] = cl.heartbeat(); c['idle'] = c.get('idle', 0) + 1
            if c['idle'] > 99: c['left'] -= 1
            return
        c['left'] -= 1; c['idle'] = 0
        cl.refill(rng.randint(1, 2))
        k = rng.choices(s.keys, s.kw)[0]; op = rng.choice(s.mix)
        if op == 'cas' and k not in cl.tokens: op = 'get'
        s.vid += 1; s.t += 1; v = s.vid
        if rng.random() < s.p_expiry and op in ('put', 'pia', 'cas'): s.w.expiry[v] = s.t + rng.randint(1, s.life)
        arg = {'put': v, 'pia': v, 'get': None, 'del': None, 'cas': (v, cl.tokens.get(k, [0] * 3)[2])}[op]
        c['op'] = (k, s.t, op, arg)
        c['gen'] = {'put': lambda: cl.put(k, v), 'pia': lambda: cl.pia(k, v), 'get': lambda: cl.get(k),
                    'del': lambda: cl.delete(k), 'cas': lambda: cl.cas(k, v, cl.tokens[k])}[op]()
        c['rtt0'] = cl.rtt
    def step_client(s, c):
        rng, cl = s.rng, c['c']
        new = c['gen'] is None
        if new: s.start(c); c['send'] = None
        try:
            if c['brk'] and not new: c['brk'] = False; v = c['gen'].throw(Broken())
            else: v = c['gen'].send(c['send'])
            while isinstance(v, Ret): s.record(c, v.v); v = c['gen'].send(None)
        except StopIteration as e:
            s.record(c, e.value); s.finish(c); return
        k = 1
        if c['brk']: pass                 # fail-over while idle: the first verb finds no connection
        elif s.p_break and rng.random() < s.p_break:
            z = rng.random(); c['brk'] = True
            if 'no_fence' in s.w.mut and z < .7: s.zombies.append(v)
            elif z < .5: v()
        else:
            r = c['send'] = v()
            if getattr(v, 'what', 0) and v.what[0] == s.w.primary and v.what[3] == r: k = s.evil
        if 'no_hold' in s.w.mut and rng.random() < .1: s.w.reported[cl.sid] = s.w.G
        if rng.random() < (s.p_stall if k == 1 else s.stall_cas): c['stall'] = s.steps + rng.randint(10, s.stall_max)
        if rng.random() < s.p_crash * k: s.lose(c); c['left'] = 0; s.w.expire(c['c'].sid)
    def lose(s, c):                       # the client (or its session) is gone; fenced everywhere
        s.record(c, 'LOST'); s.w.expire(c['c'].sid); s.session(c)
    def expire(s, c):                     # a slow client loses its session and starts another
        if 'expire_no_fence' in s.w.mut and c['gen']: s.w.expire(c['c'].sid); return
        s.lose(c)
    def failover(s):
        w = s.w; s.check_replicas()
        old, p = w.primary, s.rng.choice(w.backups)
        w.primary = p; w.backups = [r for r in w.backups if r != p]
        for r in w.backups:               # reconcile from the new primary
            w.slots[r] = [list(x) for x in w.slots[p]]; w.dirs[r] = w.dirs[p]; w.hdr[r] = list(w.hdr[p])
            if FAST and 'fo_no_blocks' not in w.mut:
                for x in map(strip, w.slots[p][w.dirs[p][1]]):
                    if x[0] == 'L': w.blk[r][x[1]] = w.blk[p][x[1]]
        t = w.dirs[p][1]
        for r in range(len(w.region)):
            if r != t and w.region[r] == 'cur': w.region[r] = 'ret'; w.region_e[r] = w.G; w.G += 1
        w.region[t] = 'cur'
        s.sgen = None; s.server.seen = {} # the old primary's agent died with it
        for c in s.cl: c['brk'] = True    # everyone is fenced and reconnects
    def tension(s):                       # something is under way that a fail-over may cut
        w = s.w; d = w.dirs[w.primary]
        bad = any(dirty(x) for x in w.slots[w.primary][d[1]]) or any(w.dirs[r] != d for r in w.backups)
        return s.evil if bad else 1
    def check_replicas(s):                # a clean word at the primary is on every backup
        w = s.w; t = w.dirs[w.primary][1]
        for i in range(NS):
            x = strip(w.slots[w.primary][t][i])
            if dirty(x) or x[0] == 'D': continue
            if x[0] == 'T': x = w.blk[w.primary][x[1]][3]
            for r in w.backups:
                y = w.slots[r][t][i] if not FAST else strip(w.slots[r][t][i])
                if FAST and y != x and y[0] == 'L' and w.blk[r][y[1]][3] == x and w.blk[r][y[1]][0] % w.M == y[2] \
                   and w.blk[r][y[1]][5] and w.state[y[1]] in ('priv', 'doubt'): continue
                if y != x and w.dirs[r] == w.dirs[w.primary]: raise Violation('diverge')
    def go(s):
        rng = s.rng
        try:
            while True:
                live = [c for c in s.cl if c['gen'] or c['left'] > 0]
                if not live: break
                s.steps += 1
                if s.steps > 60000: return 'livelock'
                if s.w.backups and s.p_failover and rng.random() < s.p_failover * s.tension(): s.failover()
                if rng.random() < s.p_expire: s.expire(rng.choice(live))
                if s.zombies and rng.random() < .03: s.zombies.pop(rng.randrange(len(s.zombies)))()
                run = [c for c in live if c['stall'] <= s.steps]
                if not run and rng.random() < .05: rng.choice(live)['stall'] = 0
                who = rng.choices(run + [None], [c['speed'] for c in run] + [s.srv_w])[0]
                if who: s.step_client(who); continue
                if s.sgen and rng.random() < s.p_restart * (4 if s.tension() > 1 else 1) and s.restarts < 6:
                    s.sgen = None; s.restarts += 1                          # the server restarts
                if s.sgen is None: s.sgen, s.ssend = s.server.run(), None
                s.ssend = s.sgen.send(s.ssend)()
            s.check_replicas()
        except Violation as e:
            s.exc = e; return str(e)
        for k in s.keys:
            if not linearizable(s.hist[k], s.w.expiry, s.t): return 'not-linearizable ' + k
        return None

class Directed:
    """Exact schedules that random search is too slow to meet.  True = violated."""
    ALL = ('walk', 'freed', 'cached', 'overflow', 'reread', 'expiry')
    def __init__(s, mut, seed=1):
        s.mut, s.w = mut, World(random.Random(seed), 2, 2, 8, mut, 2)
        s.srv, s.c = Server(s.w), [Client(s.w, i) for i in range(3)]
        for c in s.c: c.cache_prob = 0
    def own(s, c, b):                     # client c holds block b for its next operation
        if s.w.state[b] != 'free': return False
        s.w.free.remove(b); s.w.state[b], s.w.owner[b] = 'priv', c.sid; c.pool = [b]
        return True
    def drive(s, g, stop=lambda: False, v=None, err=False):
        try:
            while True:
                x = g.throw(Broken()) if err else g.send(v)
                err, v = False, None
                if isinstance(x, Ret): s.ret = x.v; continue
                v = x()
                if stop(): return 'paused', v
        except StopIteration as e: return 'end', e.value
    def op(s, c, g):
        s.ret = None; r = s.drive(g)[1]; s.end(c)
        return s.ret if r is None else r
    def end(s, c):
        for b in c.used: s.w.state[b] = 'used'
        c.used = []
    def recycle(s, b):                    # twice round: the same version again when M = 2
        for _ in range(2):
            for _ in range(2):
                s.drive(s.srv.reclaim())
                for c in s.c: s.drive(c.heartbeat())
            s.drive(s.srv.reclaim())
            if s.w.gen[b] == 2 and s.own(s.c[2], b): s.w.state[b] = 'used'; s.c[2].pool = []
    def walk(s):
        """Insert with a block whose earlier life is in the slot's old chain; lost at fail-over."""
        w, (a, b, _) = s.w, s.c
        s.own(a, 5); s.op(a, a.put('a', 1)); s.own(a, 1); s.op(a, a.put('a', 4))
        s.op(a, a.delete('a')); s.recycle(5)
        if not s.own(a, 5): return False
        g = a.put('a', 13)
        s.drive(g, lambda: w.slots[0][0][0] == ('L', 5, 1, True))
        w.primary, w.backups = 1, []
        return s.drive(g, err=True)[0] == 'end' and s.op(b, b.get('a')) != 13
    def freed(s):
        """A slow helper expects FREED(block 1); block 1 comes back to the same slot and is freed."""
        w, (a, b, c) = s.w, s.c
        s.own(a, 1); s.op(a, a.put('a', 1)); s.op(a, a.delete('a')); s.recycle(1)
        s.own(a, 2); g = a.put('a', 2)
        _, v = s.drive(g, lambda: w.slots[0][0][0] == ('L', 2, 1, True))
        nxt = g.send(v)                   # a's CAS to the backup is posted, and delayed
        s.op(b, b.get('a')); s.op(b, b.delete('a'))
        if not s.own(c, 1): s.own(c, 3)
        s.op(c, c.put('b', 3)); s.op(c, c.delete('b'))
        s.drive(g, v=nxt())
        return strip(w.slots[1][0][0]) != strip(w.slots[0][0][0])
    def cached(s):
        """A cached GET reads the block before the slot; the block, granted once without being
        written, comes back in between with the same version: its old content passes every check."""
        for seed in range(8):             # some seed posts the block READ first
            d = Directed(s.mut, seed); a, b, _ = d.c
            d.own(a, 1); d.op(a, a.put('a', 7)); d.op(b, b.get('a'))
            d.own(a, 2); d.op(a, a.put('a', 8)); d.recycle(1)
            if not d.own(a, 1): continue
            b.cache_prob = 1; g = b.get('a')
            _, v = d.drive(g, lambda: True)
            d.op(a, a.put('a', 9))
            if d.drive(g, v=v)[1] == 7: return True
        return False

    def overflow(s):
        """A key goes to the second half while the first has no room; the first gets room again, and
        another insert of the key, which takes it, is not told to look at the second half."""
        w, (a, b, c) = s.w, s.c
        w.half = 1
        s.own(c, 0); s.op(c, c.put('x', 1))
        s.own(b, 1); g = b.put('a', 2)
        _, v = s.drive(g, lambda: w.slots[0][0][1] == ('L', 1, 1, True))
        s.op(c, c.delete('x')); s.own(a, 2); s.op(a, a.put('a', 3))
        s.drive(g, v=v); s.end(b)
        s.op(c, c.delete('a'))
        return s.op(c, c.get('a')) is not None
    def reread(s):
        """Two inserts of a key, one into either half; the one into the first saw the overflow bit clear
        when it began."""
        w, (a, b, c) = s.w, s.c
        w.half = 1
        s.own(c, 0); s.op(c, c.put('x', 1))
        s.own(b, 1); g = b.put('a', 2)
        s.drive(g, lambda: w.blk[0][1][2] == 2)
        s.op(c, c.delete('x'))
        s.own(a, 2); h = a.put('a', 3)
        s.drive(h, lambda: w.blk[0][2][2] == 3)
        s.drive(g); s.end(b); s.drive(h); s.end(a)
        s.op(c, c.delete('a'))
        return s.op(c, c.get('a')) is not None
    def expiry(s):
        """A PUT lands after its value's life; a GET that began before its end reads it."""
        w, (a, b, c), now = s.w, s.c, [5]
        w.clock, w.expiry = lambda: now[0], {2: 10}
        s.own(a, 0); s.op(a, a.put('a', 1))
        s.own(b, 1); g = b.put('a', 2)
        _, paused = s.drive(g, lambda: w.blk[0][1][2] == 2)
        h = c.get('a'); v = next(h)       # the clock is read, the READ is under way
        now[0] = 11
        if s.op(a, a.get('a')) != 1: return True
        s.drive(g, v=paused); s.end(b)
        return s.drive(h, v=v())[1] == 2

def one(args):
    seed, nrep, mut, M, fast = args
    FAST.clear(); FAST.update(fast)
    return seed, nrep, Run(seed, nrep, mut, M).go()
def sweep(seeds, reps, mut=None, M=None, jobs=1, stop=True):
    """-> (schedules run, [(seed, replicas, violation)]); order is deterministic."""
    work = ((sd, r, mut, M, tuple(sorted(FAST))) for sd in seeds for r in reps)
    n, bad = 0, []
    pool = multiprocessing.Pool(jobs) if jobs > 1 else None
    for sd, r, v in (pool.imap(one, work, 64) if pool else map(one, work)):
        n += 1
        if v:
            bad.append((sd, r, v))
            if stop: break
    if pool: pool.terminate()
    return n, bad
def rtts():
    for nrep in (1, 2, 3):
        row = {}
        for seed in range(400):
            R = Run(seed, nrep); c = R.cl[0]; cl = c['c']; R.server.splits = 0
            def op(name, g, cached):
                cl.cache_prob = 1 if cached else 0
                r0, v, ret = cl.rtt, None, None
                try:
                    while True:
                        x = g.send(v)
                        if isinstance(x, Ret): ret = cl.rtt - r0; v = None
                        else: v = x()
                except StopIteration: pass
                row.setdefault(name, set()).add((ret if ret is not None else cl.rtt - r0, cl.rtt - r0))
            op('PUT insert', cl.put('a', 1), 0); op('GET miss', cl.get('a'), 0); op('GET cached', cl.get('a'), 1)
            op('PUT update', cl.put('a', 2), 0); op('PUT update cached', cl.put('a', 3), 1)
            op('compare_and_swap', cl.cas('a', 4, cl.tokens['a']), 0); op('DELETE', cl.delete('a'), 0)
            op('GET absent', cl.get('a'), 0); op('put_if_absent', cl.pia('b', 5), 0)
        print('replicas', nrep, {k: sorted(v) for k, v in row.items()}, '(until return, with tail)')

if __name__ == '__main__':
    ap = argparse.ArgumentParser()
    ap.add_argument('--seeds', type=int, default=1000); ap.add_argument('--start', type=int, default=0)
    ap.add_argument('--replicas', type=int); ap.add_argument('--mutate'); ap.add_argument('--modulus', type=int)
    ap.add_argument('--jobs', type=int, default=1)
    for f in ('list', 'table', 'rtt', 'show'): ap.add_argument('--' + f, action='store_true')
    ap.add_argument('--fast', nargs='?', const='put', default='')
    a = ap.parse_args()
    FAST.update(x for x in a.fast.split(',') if x)
    reps = [a.replicas] if a.replicas else [1, 2, 3]
    seeds = range(a.start, a.start + a.seeds)
    if a.list:
        for k, v in MUTATIONS.items(): print('%-36s %s' % (k, v))
    elif a.rtt: rtts()
    elif a.table:
        for k in MUTATIONS:
            hit = [f for f in Directed.ALL if getattr(Directed(k), f)()]
            if hit: print('%-36s caught by directed schedule: %s' % (k, hit[0]), flush=True); continue
            n, bad = sweep(seeds, reps, k, a.modulus, a.jobs)
            print('%-36s %s' % (k, 'caught after %d schedules: seed %d, %d replicas: %s' % ((n,) + bad[0])
                                if bad else 'NOT CAUGHT in %d schedules' % n), flush=True)
    else:
        if a.mutate and set(a.mutate.split('+')) - set('+'.join(MUTATIONS).split('+')):
            sys.exit('unknown mutation; see --list')
        n, bad = sweep(seeds, reps, a.mutate, a.modulus, a.jobs, stop=bool(a.mutate))
        directed = [f for f in Directed.ALL if getattr(Directed(a.mutate), f)()]
        for f in directed: print('directed schedule violated:', f)
        print(n, 'schedules,', len(bad), 'violations', bad[:10])
        if bad and a.show:
            R = Run(bad[0][0], bad[0][1], a.mutate, a.modulus); print(R.go())
            for k in R.keys: print(k, *sorted(R.hist[k]), sep='\n   ')
        sys.exit(1 if bad or directed else 0)
