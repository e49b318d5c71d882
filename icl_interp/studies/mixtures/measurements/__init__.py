"""What is measured: functions of the lab."""
