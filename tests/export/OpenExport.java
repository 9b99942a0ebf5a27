import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store directory with RocketMQ's own classes and answers questions about it: lines of words between tabs on
 * standard input, a line for each on standard output.
 */
public class OpenExport {
    public static void main(String[] arguments) {
        int status = 1;
        try {
            open(arguments);
            status = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        System.out.flush();
        // Threads of the store would keep the process alive.
        Runtime.getRuntime().halt(status);
    }

    private static void open(String[] arguments) throws Exception {
        System.setProperty("rocketmq.remoting.version", "493");
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(arguments[0]);
        config.setStorePathCommitLog(arguments[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(arguments[1]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(arguments[2]));
        config.setMaxHashSlotNum(Integer.parseInt(arguments[3]));
        config.setMaxIndexNum(Integer.parseInt(arguments[4]));
        config.setHaListenPort(0);
        config.setTimerWheelEnable(false);
        DefaultMessageStore store = new DefaultMessageStore(
            config, new BrokerStatsManager("c", false), (topic, queue, offset, tags, time, bits, properties) -> { },
            new BrokerConfig(), new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println("ANSWER\t" + answer(store, line.split("\t", -1)));
        }
    }

    private static String answer(DefaultMessageStore store, String[] words) throws Exception {
        switch (words[0]) {
            case "store":
                return store.getMinPhyOffset() + "\t" + store.getMaxPhyOffset();
            case "message":
                MessageExt found = store.lookMessageByOffset(Long.parseLong(words[1]));
                return found == null ? "none" : found.getTopic() + "\t" + found.getQueueOffset() + "\t" + found.getBodyCRC();
            case "queue":
                return store.getMinOffsetInQueue(words[1], Integer.parseInt(words[2])) + "\t"
                    + store.getMaxOffsetInQueue(words[1], Integer.parseInt(words[2]));
            case "time":
                return "" + store.getOffsetInQueueByTime(
                    words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), BoundaryType.valueOf(words[4]));
            case "pull":
                return pull(store, words);
            case "put":
                return put(store, words[1], Integer.parseInt(words[2]));
            case "key":
                QueryMessageResult result = store.queryMessage(words[1], words[2], Integer.parseInt(words[3]), 0, Long.MAX_VALUE);
                List<String> offsets = new ArrayList<>();
                for (SelectMappedBufferResult one : result.getMessageMapedList()) {
                    offsets.add("" + one.getStartOffset());
                }
                return String.join(",", offsets);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** Puts a message, and waits until its queue has it. */
    private static String put(DefaultMessageStore store, String topic, int queue) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(queue);
        message.setBody("new".getBytes(StandardCharsets.UTF_8));
        message.setBornHost(new InetSocketAddress("127.0.0.1", 1));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 1));
        message.setKeys("new");
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        PutMessageResult result = store.putMessage(message);
        for (int tries = 0; tries < 100 && store.dispatchBehindBytes() > 0; tries++) {
            Thread.sleep(100);
        }
        return result.getPutMessageStatus() + "\t" + result.getAppendMessageResult().getLogicsOffset();
    }

    private static String pull(DefaultMessageStore store, String[] words) {
        GetMessageResult result = store.getMessage(
            "g", words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), Integer.parseInt(words[4]), null);
        List<String> offsets = new ArrayList<>();
        for (Long offset : result.getMessageQueueOffset()) {
            offsets.add("" + offset);
        }
        String answer = result.getStatus() + "\t" + result.getNextBeginOffset() + "\t" + result.getMinOffset() + "\t"
            + result.getMaxOffset() + "\t" + String.join(",", offsets);
        result.release();
        return answer;
    }
}
