import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Writes a store directory with RocketMQ's own classes: first PLAIN messages, then as the only member of a DLedger group
 * MESSAGES more. A line on standard output for each: physical offset, queue, queue offset, length, body, CRC of the body.
 *
 * Arguments: DIRECTORY SEGMENT_BYTES PORT PLAIN MESSAGES
 */
public class WriteDledger {
    private static final String TOPIC = "orders";

    public static void main(String[] arguments) {
        int status = 1;
        try {
            int plain = Integer.parseInt(arguments[3]);
            if (plain > 0) {
                write(arguments, false, 0, plain);
            }
            write(arguments, true, plain, Integer.parseInt(arguments[4]));
            status = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        System.out.flush();
        // Threads of the store would keep the process alive.
        Runtime.getRuntime().halt(status);
    }

    private static void write(String[] arguments, boolean withDledger, int first, int count) throws Exception {
        System.setProperty("rocketmq.remoting.version", "493");
        System.setProperty("dledger.disk.ratio.check", "0.99");
        System.setProperty("dledger.disk.ratio.clean", "0.99");
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(arguments[0]);
        config.setStorePathCommitLog(arguments[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(arguments[1]));
        config.setMappedFileSizeConsumeQueue(6000);
        config.setMaxHashSlotNum(200);
        config.setMaxIndexNum(1000);
        config.setHaListenPort(0);
        config.setTimerWheelEnable(false);
        config.setDiskMaxUsedSpaceRatio(99);
        if (withDledger) {
            config.setEnableDLegerCommitLog(true);
            config.setdLegerGroup("broker-a");
            config.setdLegerSelfId("n0");
            config.setdLegerPeers("n0-localhost:" + arguments[2]);
        }
        DefaultMessageStore store = new DefaultMessageStore(
            config, new BrokerStatsManager("c", false), (topic, queue, offset, tags, time, bits, properties) -> { },
            new BrokerConfig(), new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
        while (withDledger && !((DLedgerCommitLog) store.getCommitLog()).getdLedgerServer().getMemberState().isLeader()) {
            Thread.sleep(20);
        }
        long last = 0;
        for (int number = first; number < first + count; number++) {
            AppendMessageResult appended = append(store, number);
            last = appended.getWroteOffset();
        }
        for (int wait = 0; store.dispatchBehindBytes() > 0 && wait < 500; wait++) {
            Thread.sleep(20);
        }
        for (int queue = 0; queue < 2; queue++) {
            for (long offset = 0; offset < store.getMaxOffsetInQueue(TOPIC, queue); offset++) {
                long at = store.getCommitLogOffsetInQueue(TOPIC, queue, offset);
                MessageExt found = store.lookMessageByOffset(at);
                if (at >= 0 && found.getQueueOffset() == offset && Integer.parseInt(found.getKeys()) >= first) {
                    System.out.println("MESSAGE\t" + at + "\t" + queue + "\t" + offset + "\t" + found.getStoreSize() + "\t"
                        + new String(found.getBody(), StandardCharsets.UTF_8) + "\t" + found.getBodyCRC());
                }
            }
        }
        System.out.println("LAST\t" + last + "\t" + store.getMaxPhyOffset());
        store.shutdown();
    }

    private static AppendMessageResult append(DefaultMessageStore store, int number) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(TOPIC);
        message.setQueueId(number % 2);
        message.setBody(("body " + number + " ".repeat(number % 50)).getBytes(StandardCharsets.UTF_8));
        message.setKeys("" + number);
        message.setTags("TagA");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, "UNIQUE" + number);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("10.0.0.1", 50000));
        message.setStoreHost(new InetSocketAddress("10.0.0.2", 10911));
        PutMessageResult result = store.putMessage(message);
        if (!result.isOk()) {
            throw new IllegalStateException("not put: " + result);
        }
        return result.getAppendMessageResult();
    }
}
